/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two dumps of one step, operator by operator in order of execution.
 *
 * cosine = sum l r / sqrt(sum l^2 sum r^2), f64 sums; 0 and 0: 1; 0 and other:
 * 0; NaN where a side is not finite, unless both have the same bits.
 */
#ifndef RPS_PRECISION_COMPARE_H
#define RPS_PRECISION_COMPARE_H

#include "client/precision/read.h"

struct rps_compare_options {
    double threshold;    /* 0.98: below it an output differs */
    const char *mapping; /* a file (docs/PRECISION.md); NULL: same names */
};

/** One tensor on both sides. */
struct rps_compared_tensor {
    bool is_output;
    uint32_t index;
    const struct rps_dumped_tensor *left;  /* NULL: missing there */
    const struct rps_dumped_tensor *right; /* likewise */
    bool readable; /* both files are good, and of one shape */
    bool equal_bytes;
    double cosine;
    double max_absolute; /* |l - r| */
    double max_relative; /* |l - r| / |l|; 0 where both are 0 */
    double mean_absolute;
    uint64_t left_nan, left_inf, right_nan, right_inf;
    char *problem; /* NULL; else why it is not compared */
};

/** One operator; several of one side where a fused one stands on the other. */
struct rps_compared {
    const struct rps_dumped_operator *left; /* the last of them; NULL: only
                                             * the other side has it */
    const struct rps_dumped_operator *right;
    const char *type; /* borrowed of one of them */
    const char *name;
    struct rps_compared_tensor *tensors; /* inputs, then outputs */
    uint32_t tensor_count;
    double input_cosine;  /* the least; 1 without inputs */
    double output_cosine; /* the least; 1 without outputs */
};

enum rps_compare_verdict {
    RPS_VERDICT_SAME = 0,    /* no output below the threshold */
    RPS_VERDICT_OPERATOR,    /* inputs agree, an output does not */
    RPS_VERDICT_FUSED,       /* the same, of a fused one: fusion off next */
    RPS_VERDICT_LOOKUP,      /* an embedding differs: keys are told */
    RPS_VERDICT_INPUTS,      /* the first one's inputs differ, and nobody in
                              * the dump wrote them */
    RPS_VERDICT_INCOMPARABLE /* nothing could be compared */
};

struct rps_comparison {
    struct rps_compared *operators; /* by time on the left */
    uint32_t operator_count;
    enum rps_compare_verdict verdict;
    uint32_t first;    /* the operator of the verdict */
    uint32_t problems; /* files damaged, missing or of another shape */
    uint32_t only_left, only_right;
    char *words; /* the verdict in sentences, with the command to type next */
};

rps_status rps_compare(const struct rps_dumped *left,
        const struct rps_dumped *right,
        const struct rps_compare_options *options,
        struct rps_comparison **comparison_out, struct rps_error *error);
void rps_comparison_free(struct rps_comparison *comparison);

/** CSV with a head: Left, Right, type, Input (cosines by index, "0:1.0;1:0.5"),
 * Output, then one column each of the rest. Replaced as a whole. */
rps_status rps_compare_write_csv(const struct rps_comparison *comparison,
        const char *path, struct rps_error *error);
/** One self-contained page with a chart of cosine over operators. */
rps_status rps_compare_write_html(const struct rps_comparison *comparison,
        const char *title, const char *path, struct rps_error *error);

#endif /* RPS_PRECISION_COMPARE_H */
