/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first NaN or infinity of a dump, and where it comes from. Files are
 * looked at by time, as the guide's find_nan.py does.
 *
 * An output is replayed: if its inputs do not give it, it is that operator; if
 * they do, what it read is followed, writer by writer, to one of the endings.
 * An input that is not finite while its writer's output is was overwritten
 * between the two.
 */
#ifndef RPS_PRECISION_NAN_H
#define RPS_PRECISION_NAN_H

#include "client/precision/read.h"

enum rps_nan_ending {
    RPS_NAN_CLEAN = 0,   /* there is none */
    RPS_NAN_OPERATOR,    /* its inputs do not give its output */
    RPS_NAN_OVERWRITTEN, /* memory changed between writer and reader */
    RPS_NAN_EMBEDDING,   /* a table's lookup returned it */
    RPS_NAN_PUSH,        /* gradients of keys, that no operator wrote so */
    RPS_NAN_HOST,        /* data, start values, or an earlier step's */
    RPS_NAN_ARITHMETIC,  /* every operator is right: numbers grow too large */
    RPS_NAN_UNKNOWN      /* an operator on the way cannot be replayed */
};

#define RPS_NAN_NOWHERE UINT32_MAX

/** A tensor of an operator, and an element of it. */
struct rps_nan_spot {
    uint32_t op; /* index of the operator; RPS_NAN_NOWHERE: none */
    bool is_output;
    uint32_t index; /* into inputs or outputs */
    uint64_t element;
    double value;
};

/** What is not finite in a tensor. */
struct rps_nan_count {
    uint64_t count; /* elements */
    uint64_t nan;
    uint64_t infinite;
};

#define RPS_NAN_ELEMENTS_MAX 16u
#define RPS_NAN_KEYS_MAX     64u

struct rps_nan_words {
    char **lines; /* sentences */
    uint32_t count;
};

struct rps_nan_report {
    enum rps_nan_ending ending;
    uint64_t files;  /* that were looked at */
    uint64_t unread; /* that cannot be read to their end */
    uint32_t steps;
    struct rps_dumped *dumped;    /* the step of what follows; NULL: CLEAN */
    struct rps_nan_spot first;    /* by time, NaN or infinity */
    struct rps_nan_count counted; /* there */
    struct rps_nan_spot nan; /* by time, NaN alone: what find_nan.py prints */

    struct rps_nan_spot cause;  /* the operator of the ending; of OVERWRITTEN
                                 * the input that was */
    struct rps_nan_spot before; /* OVERWRITTEN: the writer's output */
    uint64_t before_step;       /* OVERWRITTEN: the step of `before` */
    /* "linear top.2/linear output 0 (y)" in a step before this one; NULL: it is
     * of this one, and `before` says where */
    char *before_words;
    uint64_t elements[RPS_NAN_ELEMENTS_MAX]; /* of the cause: its first ones */
    uint64_t element_count;                  /* all that are not finite */
    char *table;                             /* EMBEDDING, PUSH */
    uint64_t keys[RPS_NAN_KEYS_MAX];         /* its first ones */
    uint64_t key_count;                      /* all */

    struct rps_nan_words trail;    /* from the first file to the ending */
    struct rps_nan_words words;    /* the ending, and what to do */
    struct rps_nan_words problems; /* files that are damaged or missing */
};

struct rps_nan_options {
    bool nan_alone; /* infinities are looked over */
};

/** Errors: those of rps_dumped_find(), and NOMEM. */
rps_status rps_nan_find(const char *path, const struct rps_nan_options *options,
        struct rps_nan_report **report_out, struct rps_error *error);
void rps_nan_report_free(struct rps_nan_report *report);

/** The tensor of a spot. */
const struct rps_dumped_tensor *rps_nan_tensor(
        const struct rps_nan_report *report, const struct rps_nan_spot *spot);

/** "operator", "overwritten", "embedding", …: for reports. Static. */
const char *rps_nan_ending_name(enum rps_nan_ending ending);

/** One operator's tensor: "input 1 (weight)"; free(). NULL: no memory. */
char *rps_nan_tensor_words(
        bool is_output, const struct rps_dumped_tensor *tensor);
/** An element: "[3, 17]"; free(). NULL: no memory. */
char *rps_nan_element_words(
        const struct rps_dumped_tensor *tensor, uint64_t element);

#endif /* RPS_PRECISION_NAN_H */
