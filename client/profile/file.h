/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a profile, written from its first byte to its last. */
#ifndef RPS_PROFILE_FILE_H
#define RPS_PROFILE_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct rps_profile_file {
    FILE *stream;
    char path[1024];
};

/** folder/name, which must not be there. */
rps_status rps_profile_file_open(struct rps_profile_file *file,
        const char *folder, const char *name, struct rps_error *error);

/** Is everything in it? Closes it in any case. */
rps_status rps_profile_file_close(
        struct rps_profile_file *file, struct rps_error *error);

/** "text" with quotes, as JSON has it. What is not ASCII comes as \u00XX: names
 * of recps are ASCII, and others must not break the file. */
void rps_profile_put_json(FILE *stream, const char *text);

/** A field of a table: in quotes where it needs them. */
void rps_profile_put_csv(FILE *stream, const char *text);

/** Nanoseconds as microseconds with three places. */
void rps_profile_put_us(FILE *stream, uint64_t ns);

#endif /* RPS_PROFILE_FILE_H */
