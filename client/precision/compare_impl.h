/* SPDX-License-Identifier: Apache-2.0 */
/* What compare*.c share: which operators and tensors meet, and their figures.
 */
#ifndef RPS_PRECISION_COMPARE_IMPL_H
#define RPS_PRECISION_COMPARE_IMPL_H

#include "base/text.h"
#include "client/precision/compare.h"

/* --- figures (compare_tensor.c) ------------------------------------------ */

/** Two sides' numbers, added up pair by pair. Zeroed is empty, but for
 * `equal`, which begins as true. */
struct rps_compare_sums {
    double ll, rr, lr;
    double max_absolute, max_relative, sum_absolute;
    uint64_t pairs; /* both finite */
    uint64_t count;
    uint64_t left_nan, left_inf, right_nan, right_inf;
    bool equal; /* the same bits so far */
};

void rps_compare_sums_add(struct rps_compare_sums *sums, const double *left,
        const double *right, uint64_t n);
double rps_compare_sums_cosine(const struct rps_compare_sums *sums);
/** The shorter's length by the longer's; 1 where both are 0. */
double rps_compare_sums_ratio(const struct rps_compare_sums *sums);
/** Figures of the sums into the tensor. */
void rps_compare_sums_give(const struct rps_compare_sums *sums,
        struct rps_compared_tensor *tensor);

/** Whole numbers? */
bool rps_compare_is_whole(enum rps_dump_dtype dtype);

/** flat: shapes may differ where their elements are as many. */
void rps_compare_tensor(struct rps_compared_tensor *tensor, bool flat,
        const struct rps_compare_options *options);

/** tensor->problem; no memory leaves it NULL. */
void rps_compare_problem(struct rps_compared_tensor *tensor, bool damaged,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/* --- rows by their keys (compare_rows.c) --------------------------------- */

/** Has it keys, and is it to be compared by them on both sides? */
bool rps_compare_has_keys(const struct rps_compared *compared);

/** One row's sums, as a table's rows are judged. */
bool rps_compare_row_agrees(const struct rps_compare_sums *sums,
        const struct rps_compare_options *options);

/** Every tensor of it. Files that cannot be read are its tensors' problems. */
void rps_compare_rows(struct rps_compared *compared,
        const struct rps_compare_options *options);

/* --- the mapping file (compare_map.c) ------------------------------------ */

struct rps_compare_map_pair {
    char *left, *right;           /* cleaned; at most one '*' in each */
    char *left_type, *right_type; /* NULL: any */
    json_t *inputs, *outputs;     /* {"left index": right index}, or NULL */
};

struct rps_compare_map {
    json_t *json;
    struct rps_compare_map_pair *pairs;
    uint32_t count;
};

/** Errors: NOT_FOUND, IO, CORRUPT (what is wrong, and where), NOMEM. */
rps_status rps_compare_map_load(
        struct rps_compare_map *map, const char *path, struct rps_error *error);
void rps_compare_map_finish(struct rps_compare_map *map);

/** Are these two a pair of it? */
const struct rps_compare_map_pair *rps_compare_map_find(
        const struct rps_compare_map *map,
        const struct rps_dumped_operator *left,
        const struct rps_dumped_operator *right);
/** The right tensor's index for a left one's. UINT32_MAX: it has none. */
uint32_t rps_compare_map_index(
        const struct rps_compare_map_pair *pair, bool is_output, uint32_t left);

/* --- which operators meet (compare_match.c) ------------------------------ */

struct rps_compare_match {
    const struct rps_dumped_operator **left, **right; /* by time; borrowed */
    uint32_t left_count, right_count;
    const struct rps_compare_map_pair *mapped; /* NULL: by its name */
    uint64_t order; /* of the last on the left; ties: as they come */
};

struct rps_compare_matches {
    struct rps_compare_match *list; /* by order */
    uint32_t count;
};

/** Errors: NOMEM. */
rps_status rps_compare_match(const struct rps_dumped *left,
        const struct rps_dumped *right, const struct rps_compare_map *map,
        struct rps_compare_matches *matches, struct rps_error *error);
void rps_compare_matches_finish(struct rps_compare_matches *matches);

/* --- which tensors meet (compare_pair.c) --------------------------------- */

/** compared->tensors with both sides, not compared yet. false: no memory. */
bool rps_compare_pair(
        struct rps_compared *compared, const struct rps_compare_match *match);

/** Of a group: a tensor of the one for each of the other side's parts', with
 * its figures. false: no memory. */
bool rps_compare_group(struct rps_compared *compared,
        const struct rps_compare_match *match,
        const struct rps_compare_options *options);

/* --- the verdict (compare_verdict.c) ------------------------------------- */

/** Verdict, first and words. Errors: NOMEM. */
rps_status rps_compare_judge(struct rps_comparison *comparison,
        const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compare_options *options, struct rps_error *error);

#endif /* RPS_PRECISION_COMPARE_IMPL_H */
