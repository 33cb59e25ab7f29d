/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparisons as the guide keeps them: CSV files of one folder (compare.h has
 * their columns), found and read again, and filtered by their cosines.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PRECISION_VECTOR_COMPARE_H
#define RPS_PRECISION_VECTOR_COMPARE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define RPS_VECTOR_BYTES_MAX (512u << 20) /* of a file */

struct rps_vector_cosine {
    uint32_t index; /* of the input or output */
    double cosine;  /* in [-1, 1]; NaN: a side is not finite */
};

/** An operator of both sides, or of one. */
struct rps_vector_line {
    char *left, *right; /* names; "" for none */
    char *type;
    uint64_t step; /* 0 where the file has no column Step */
    bool agrees;   /* the column Agrees is not "no" */
    bool unread;   /* … is "not compared": a file could not be read */
    struct rps_vector_cosine *cosines; /* inputs, then outputs */
    uint32_t input_count, output_count;
};

struct rps_vector_results {
    struct rps_vector_line *lines; /* in order of execution */
    uint32_t count;
    bool has_steps;
};

/** A name in `folder` that is not taken, of the time that it is: the folder is
 * made. Owns: *path_out is free()d by the caller. Errors: IO, NOMEM, LIMIT. */
rps_status rps_vector_new(
        const char *folder, char **path_out, struct rps_error *error);

/** The file that was written last. Owns: as above. Errors: NOT_FOUND (no CSV
 * file is there), IO, NOMEM. */
rps_status rps_vector_newest(
        const char *folder, char **path_out, struct rps_error *error);

/** Owns: rps_vector_finish() releases them, whatever the status. Errors:
 * NOT_FOUND, IO, LIMIT, NOMEM; CORRUPT names the line and what is wrong. */
rps_status rps_vector_read(const char *path,
        struct rps_vector_results *results_out, struct rps_error *error);
void rps_vector_finish(struct rps_vector_results *results);

/** Is a cosine of its inputs, or of its outputs, below? NaN is. */
bool rps_vector_is_below(
        const struct rps_vector_line *line, bool is_output, double threshold);

/** The line with the least cosine, NaN first; NULL: none has one. */
const struct rps_vector_line *rps_vector_least(
        const struct rps_vector_results *results, double *cosine_out);

/** The first threshold of 0.99, 0.995, 0.999, …, 1 that finds something where
 * `least` is the least cosine: least < it <= 1. NaN: none does. */
double rps_vector_propose(double least);

#endif /* RPS_PRECISION_VECTOR_COMPARE_H */
