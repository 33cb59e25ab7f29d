/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator of the model on the host reads and writes: said once, when
 * the model is made, so that a dump can take it (tape.h) and its size is known
 * before it begins. Names, order and shapes are those of the device's operators
 * (ops of client/npu), so that the two compare file by file.
 *
 * The model computes tiles; a dump has the batch. So an operand says where a
 * tile's rows are, and the tape joins them.
 */
#ifndef RPS_WORKER_OPERAND_H
#define RPS_WORKER_OPERAND_H

#include "client/precision/dump.h"
#include "client/worker/operator.h"

#define RPS_OPERANDS_MAX 8u

enum rps_operand_reach {
    RPS_OPERAND_WHOLE = 0, /* one for all tiles: looked at behind the last */
    RPS_OPERAND_TILE,      /* a tile's rows, in memory that each tile has */
    RPS_OPERAND_BATCH,     /* a tile's rows, where the whole batch's are */
    RPS_OPERAND_ROW        /* one row: rps_operator_row() */
};

/** Where its elements would lie if the batch were computed at once: who wrote
 * what an operator reads is found by it. */
struct rps_operand_home {
    const void *of; /* the tensor that it is a part of; NULL: it is alone */
    uint64_t first; /* element */
    uint64_t strides[RPS_DUMP_DIMS_MAX]; /* elements */
};

struct rps_operand {
    const char *label;       /* static */
    const void *at;          /* its first element; or */
    const float *const *via; /* where that is said; NULL: `at` */
    enum rps_operand_reach reach;
    enum rps_dump_dtype dtype;
    uint32_t ndim;
    /* shape[0]: but for WHOLE, how many of a sample's */
    uint64_t shape[RPS_DUMP_DIMS_MAX];
    uint64_t strides[RPS_DUMP_DIMS_MAX]; /* of `at`, elements */
    struct rps_operand_home home;
};

/** How the host computes, in the words of the device's attributes; what is an
 * operator's own follows. */
#define RPS_OPERANDS_HOW(own) \
    "{\"deterministic\": true, \"mixed\": false, \"precise\": false" own "}"
#define RPS_OPERANDS_PLAIN RPS_OPERANDS_HOW("")
#define RPS_OPERANDS_LAYER(activation)                        \
    RPS_OPERANDS_HOW(", \"activation\": \"" activation "\", " \
                     "\"accumulate\": false")

/** Which dumps have it. */
enum rps_operands_when {
    RPS_OPERANDS_ALWAYS = 0,
    RPS_OPERANDS_FUSED, /* --fusion on */
    RPS_OPERANDS_PART   /* --fusion off: a part of a fused one */
};

struct rps_operands {
    const struct rps_operator *operator; /* borrowed */
    enum rps_operands_when when;
    const char *attributes; /* JSON; static */
    struct rps_operand inputs[RPS_OPERANDS_MAX];
    uint32_t input_count;
    struct rps_operand outputs[RPS_OPERANDS_MAX];
    uint32_t output_count;
    uint32_t taped; /* the tape's: its number in this step + 1; 0: not yet */
    struct rps_operands *next; /* of the model's */
};

/** Those of a model, newest first. Zeroed: none. */
struct rps_operands_list {
    struct rps_operands *first;
    bool failed; /* there was no memory for one */
};

/**
 * Operands of an operator that has its name. NULL: no memory, as the list
 * says; adding to it does nothing.
 *
 * Owns:    the list has them; borrows the operator as long.
 */
struct rps_operands *rps_operands_of(struct rps_operands_list *list,
        struct rps_operator *operator, enum rps_operands_when when,
        const char *attributes);
void rps_operands_finish(struct rps_operands_list *list);

void rps_operands_input(
        struct rps_operands *operands, const struct rps_operand *operand);
void rps_operands_output(
        struct rps_operands *operands, const struct rps_operand *operand);

/** [tile][width] f32. */
struct rps_operand rps_operand_rows(
        const char *label, const float *at, uint64_t width);

/** [tile][n][width] f32. */
struct rps_operand rps_operand_cube(
        const char *label, const float *at, uint64_t n, uint64_t width);

/** Of all tiles: [shape], packed. */
struct rps_operand rps_operand_whole(const char *label,
        enum rps_dump_dtype dtype, const void *at, uint32_t ndim,
        const uint64_t *shape);

/** Elements in C order. */
void rps_operand_pack(
        uint32_t ndim, const uint64_t *shape, uint64_t *strides_out);

static inline const void *
rps_operand_at(const struct rps_operand *operand)
{
    return operand->via != NULL ? *operand->via : operand->at;
}

/** How many bytes a dump of `rows` rows has of it. */
uint64_t rps_operand_bytes(const struct rps_operand *operand, uint64_t rows);

/** Of all operators of a list that such a dump has: how many they are, and
 * their bytes; added. */
void rps_operands_count(const struct rps_operands_list *list, bool fused,
        uint64_t rows, uint64_t *operators, uint64_t *bytes);

static inline bool
rps_operands_has(const struct rps_operands *operands, bool fused)
{
    return operands->when == RPS_OPERANDS_ALWAYS ||
           (operands->when == RPS_OPERANDS_FUSED) == fused;
}

#endif /* RPS_WORKER_OPERAND_H */
