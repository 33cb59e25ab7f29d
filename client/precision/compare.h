/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two dumps of one step, operator by operator in order of execution.
 *
 * cosine = sum l r / sqrt(sum l^2 sum r^2), f64 sums; 0 and 0: 1; 0 and other:
 * 0; NaN where a side is not finite, unless both have the same bits.
 *
 * A cosine says nothing of length, and of one number only its sign. So two
 * tensors agree where their cosine is not below the threshold t, and the
 * quotient of their lengths, the shorter one's by the longer one's, not below
 * 1 - sqrt(2 - 2 t): then the longer one is as far from the shorter one as it
 * would be at the cosine t, by its own length. That is 0.8 for 0.98. Whole
 * numbers agree where they are the same. Rows that have keys agree one by one.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PRECISION_COMPARE_H
#define RPS_PRECISION_COMPARE_H

#include "client/precision/read.h"

#define RPS_COMPARE_THRESHOLD 0.98
#define RPS_COMPARE_KEYS_MAX  10u /* that are told */

struct rps_compare_options {
    double threshold;    /* 0.98: below it an output differs; in [-1, 1] */
    bool exact;          /* agrees only what has the same bytes */
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
    bool equal_values; /* the same, whatever the dtypes */
    double cosine;
    double max_absolute; /* |l - r| */
    double max_relative; /* |l - r| / |l|; 0 where both are 0 */
    double mean_absolute;
    double length_ratio; /* the shorter by the longer, in [0, 1] */
    bool agrees;         /* true where it is not readable: nothing is known */
    /* of rows with keys, else 0: those that do not agree; the least cosine of
     * one, and its key */
    uint64_t rows_differ;
    bool has_rows;
    double row_cosine;
    uint64_t row_key;
    uint64_t left_nan, left_inf, right_nan, right_inf;
    char *problem; /* NULL; else why it is not compared */
    bool damaged;  /* the problem is one of the dumps: a file that is damaged,
                    * missing, or of another shape */
};

/** One operator; several of one side where a fused one stands on the other. */
struct rps_compared {
    const struct rps_dumped_operator *left; /* the last of them; NULL: only
                                             * the other side has it */
    const struct rps_dumped_operator *right;
    /* how many stand on each side: 1, or the parts of the other side's one */
    uint32_t left_count, right_count;
    const char *type; /* borrowed of one of them */
    const char *name;
    char *left_names, *right_names; /* of all of them: "a + b"; "" for none */
    struct rps_compared_tensor *tensors; /* inputs, then outputs */
    uint32_t tensor_count;
    double input_cosine;  /* the least; 1 without inputs */
    double output_cosine; /* the least; 1 without outputs */
    bool inputs_agree, outputs_agree;
    /* damaged, missing or of another shape: of these nothing is known */
    uint32_t unread_inputs, unread_outputs;
    /* of a lookup or a push: its keys whose rows differ, ascending, the first
     * of them; and how many keys only one side has */
    bool has_keys;
    uint64_t keys[RPS_COMPARE_KEYS_MAX];
    uint64_t keys_differ; /* all of them */
    uint64_t keys_left, keys_right;
};

enum rps_compare_verdict {
    RPS_VERDICT_SAME = 0,    /* every input and output agrees */
    RPS_VERDICT_OPERATOR,    /* inputs agree, an output does not */
    RPS_VERDICT_FUSED,       /* the same, of a fused one: fusion off next */
    RPS_VERDICT_LOOKUP,      /* an embedding differs: keys are told */
    RPS_VERDICT_INPUTS,      /* the first one's inputs differ: nobody in the
                              * dump wrote them, or who did wrote the same */
    RPS_VERDICT_INCOMPARABLE /* nothing could be compared */
};

struct rps_comparison {
    struct rps_compared *operators; /* by time on the left */
    uint32_t operator_count;
    enum rps_compare_verdict verdict;
    uint32_t first;    /* the operator of the verdict */
    uint32_t problems; /* files damaged, missing or of another shape, and the
                        * problems of both folders */
    uint32_t only_left, only_right;
    uint32_t compared_files, equal_files; /* pairs; of the same bytes */
    uint32_t unread; /* tensors that are damaged, missing or of another shape */
    double threshold;
    bool mapped; /* with a mapping: who has no counterpart is no difference */
    char *words; /* the verdict in sentences, with the command to type next */
};

rps_status rps_compare(const struct rps_dumped *left,
        const struct rps_dumped *right,
        const struct rps_compare_options *options,
        struct rps_comparison **comparison_out, struct rps_error *error);
void rps_comparison_free(struct rps_comparison *comparison);

/** The quotient of lengths that goes with a cosine: >= 0. */
double rps_compare_length_threshold(double threshold);

/** "same", "operator", "fused", … */
const char *rps_compare_verdict_name(enum rps_compare_verdict verdict);

/* --- whole dumps --------------------------------------------------------- */

struct rps_compare_step {
    uint64_t step; /* of the left side */
    struct rps_dumped *left;
    struct rps_dumped *right;
    struct rps_comparison *comparison;
};

/** Every step that both have. */
struct rps_compare_run {
    struct rps_compare_step *steps; /* ascending */
    uint32_t count;
    uint64_t *left_alone, *right_alone; /* steps of one side */
    uint32_t left_alone_count, right_alone_count;
    bool single; /* a side has one step: the other's are not missed there */
    /* the first one whose verdict is another than SAME (INCOMPARABLE where no
     * other is); NULL: there is none */
    const struct rps_compare_step *first;
    uint32_t problems; /* of all steps, and a step that one side lacks */
};

/**
 * `left` and `right` as rps_dumped_find() takes them. A single step is compared
 * with the same one of the other side, or with its only one.
 *
 * Owns:   *run_out is the caller's.
 * Errors: those of rps_dumped_find(); NOT_FOUND: no step is in both.
 */
rps_status rps_compare_dumps(const char *left, const char *right,
        const struct rps_compare_options *options,
        struct rps_compare_run **run_out, struct rps_error *error);
void rps_compare_run_free(struct rps_compare_run *run);

/** As below, of all steps; the CSV has a column Step. */
rps_status rps_compare_run_write_csv(const struct rps_compare_run *run,
        const char *path, struct rps_error *error);
rps_status rps_compare_run_write_html(const struct rps_compare_run *run,
        const char *title, const char *path, struct rps_error *error);

/** CSV with a head: Left, Right, type, Input (cosines by index, "0:1.0;1:0.5"),
 * Output, then one column each of the rest. Replaced as a whole. */
rps_status rps_compare_write_csv(const struct rps_comparison *comparison,
        const char *path, struct rps_error *error);
/** One self-contained page with a chart of cosine over operators. */
rps_status rps_compare_write_html(const struct rps_comparison *comparison,
        const char *title, const char *path, struct rps_error *error);

#endif /* RPS_PRECISION_COMPARE_H */
