/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings, each kept once: the same text is the same pointer.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PROFILE_STRINGS_H
#define RPS_PROFILE_STRINGS_H

#include <stddef.h>

/** Zeroed is empty. */
struct rps_strings {
    struct rps_strings_block *blocks; /* the texts, newest first */
    const char **slots;               /* [slot_count], open addressing */
    size_t slot_count;                /* a power of two, or 0 */
    size_t count;                     /* count <= slot_count * 3 / 4 */
    size_t bytes;                     /* of blocks and slots */
};

/** The kept one of `text`; NULL: no memory. */
const char *rps_strings_keep(struct rps_strings *strings, const char *text);

void rps_strings_finish(struct rps_strings *strings);

#endif /* RPS_PROFILE_STRINGS_H */
