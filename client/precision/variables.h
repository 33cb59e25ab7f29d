/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables of two checkpoints, each as one vector: rows aligned by key,
 * joined in one order on both sides.
 *
 *   cosine = sum a b / sqrt(sum a^2 sum b^2)   f64 sums, in [-1, 1]
 *            1 where both norms are 0, 0 where one alone is;
 *            NaN where rows that differ are not finite
 *
 * The same of one row alone says which is the worst. Rows of one side alone
 * are counted and are in no sum. Rows with the same bits, finite or not, agree;
 * those that are not finite are in no sum.
 *
 *   rows_a = both + only_a      rows_b = both + only_b
 *
 * One side of a table is in memory, or as much of it as is allowed; what does
 * not fit is done in several passes over the files.
 */
#ifndef RPS_PRECISION_VARIABLES_H
#define RPS_PRECISION_VARIABLES_H

#include "embedding/checkpoint/chain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_VARIABLES_MEMORY_BYTES ((size_t)512 << 20)

/** The values of a table, or one of its optimizer's slots. */
struct rps_variable {
    char *name;       /* "top.2.weight"; of a slot "top.2.weight/m" */
    char *table;      /* "top.2.weight" */
    const char *slot; /* "m"; NULL: the values */
    const char *optimizer;
    bool dense;
    /* NULL; else why there is no cosine: one side has no such table, or rows
     * of another width, or another number of elements, or slots of another
     * optimizer, or files that cannot be read */
    char *problem;
    bool unread; /* the last of these: then nothing is counted */
    bool in_a, in_b;
    uint64_t rows_a, rows_b; /* of a dense variable of 1024 elements each */
    uint64_t both;
    uint64_t only_a, only_b;
    uint64_t changed; /* of both: their bits differ */
    uint64_t below;   /* of those, with a cosine below the threshold */
    double cosine;
    double norm_a, norm_b; /* of the rows of both that are finite */
    uint64_t bad_a, bad_b; /* rows of both with NaN or infinity */
    /* of those of both that differ, where changed > 0: of equal ones the
     * smallest key */
    uint64_t worst_key;
    double worst_cosine;
    double largest; /* |a - b|; infinite where one of two is not finite */
    uint64_t largest_key;
    uint32_t largest_column;
};

struct rps_variables_options {
    double threshold;    /* 0.98 */
    bool slots;          /* the optimizers' slots, too */
    const char *table;   /* this one alone; NULL: all */
    size_t memory_bytes; /* about; 0: RPS_VARIABLES_MEMORY_BYTES */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
};

struct rps_variables {
    struct rps_variable
            *list; /* [count]: least cosine first, NaN before all,
                    * equal ones by name; those without at the end */
    size_t count;
    size_t below;    /* list[0, below) are below the threshold, or NaN */
    size_t problems; /* list[count - problems, count) */
    size_t unread;   /* of these: files that cannot be read */
    /* of these: dense ones of another size, so that the models are not one */
    size_t resized;
    /* of those that are not below: how many have rows that are */
    size_t with_rows_below;
    double threshold;
};

#define RPS_COSINE_TEXT_BYTES 32u

/** "0.98123", "1", and "1 - 3e-14" for what only looks like it. Returns out. */
char *rps_cosine_text(double cosine, char out[RPS_COSINE_TEXT_BYTES]);

/** Is this one below the threshold? One without a cosine is not. */
bool rps_variable_is_below(
        const struct rps_variable *variable, double threshold);

/**
 * Compare chains whose parts have been read. A table of which a file is
 * damaged, missing or cannot be read has that as its problem, and the others
 * are compared.
 *
 * Errors: NOT_FOUND (options->table: neither has it), NOMEM; the variables are
 *         then finished.
 */
rps_status rps_variables_compare(struct rps_variables *variables,
        const struct rps_ckpt_chain *a, const struct rps_ckpt_chain *b,
        const struct rps_variables_options *options, struct rps_error *error);

/** A zeroed one is fine. */
void rps_variables_finish(struct rps_variables *variables);

#endif /* RPS_PRECISION_VARIABLES_H */
