/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model: its dense variables, its sparse tables, and one function that
 * computes a batch. It knows no server: step.c fetches rows into its
 * buffers and sends its gradients away.
 *
 * Batches are computed in tiles of RPS_MODEL_TILE rows, the last one padded
 * with zeros, so that no matrix shape depends on the batch size; stage.h
 * builds on it.
 */
#ifndef RPS_WORKER_MODEL_H
#define RPS_WORKER_MODEL_H

#include "base/error.h"
#include "client/worker/operand.h"

#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

#define RPS_MODEL_TILE       64u
#define RPS_MODEL_LAYERS_MAX 16u
#define RPS_MODEL_WIDTH_MAX  65536u
/* Criteo's models have 26, one a field. A fused push of 64 tables and of all
 * variables has 4 (64 + 128) sections at most, which one frame takes (1024),
 * and what is an array of them here stays below 32 KiB. */
#define RPS_MODEL_TABLES_MAX    64u
#define RPS_MODEL_LABELS_MAX    2u
#define RPS_VARIABLE_NAME_BYTES (RPS_NAME_BYTES_MAX + 1)
/* two variables a layer; bottom and top, or trunk and heads; a projection a
 * table */
#define RPS_MODEL_VARIABLES_MAX \
    (4u * RPS_MODEL_LAYERS_MAX + RPS_MODEL_TABLES_MAX)

enum rps_model_kind {
    RPS_MODEL_DLRM,
    RPS_MODEL_LITTLE_DEMO
};

/**
 * A dense variable as its dense table holds it: rows of 1024 elements, the
 * tail of the last one zeros, in the gradients, too.
 */
struct rps_variable {
    char name[RPS_VARIABLE_NAME_BYTES];
    uint32_t ndim; /* weight: 2, bias: 1 */
    uint64_t shape[2];
    uint64_t elements;
    float start_bound; /* start: uniform in [-start_bound, start_bound) */
    uint64_t rows;
    size_t first;     /* of its floats in those of the model */
    float *values;    /* [rows][1024] */
    float *gradients; /* [rows][1024] */
};

/**
 * A sparse table of the model. Bag b of a sample has the tokens of the fields
 * fields[bag_starts[b] .. bag_starts[b + 1]), and becomes one row.
 */
struct rps_model_table {
    const char *name;
    uint32_t dim;
    enum rps_pooling pooling;
    uint32_t bags;
    const uint32_t *bag_starts; /* [bags + 1] */
    const uint32_t *fields;     /* of the data; [bag_starts[bags]] */
};

/** Layers by their widths, first to last. */
struct rps_model_layers {
    uint32_t count;
    uint32_t widths[RPS_MODEL_LAYERS_MAX];
};

struct rps_model_shape {
    uint32_t dense;                 /* dense features of a sample */
    uint32_t fields;                /* sparse fields of a sample */
    struct rps_model_layers bottom; /* dlrm: the last is the vectors' width */
    struct rps_model_layers top;    /* dlrm: the last is 1 */
    struct rps_model_layers trunk;  /* little_demo: below the heads */
    uint32_t table_count;
    const struct rps_model_table *tables; /* names, fields: borrowed */
};

/** One batch. Gradients are written where they are not NULL. */
struct rps_model_input {
    size_t rows;
    const float *dense;  /* [rows][dense] */
    const float *labels; /* [rows][labels]; NULL: forward only */
    const float *pooled[RPS_MODEL_TABLES_MAX];     /* [rows][bags][dim] */
    float *pooled_gradients[RPS_MODEL_TABLES_MAX]; /* same; NULL: forward */
    double loss_scale; /* 1 / rows of the whole step's batch */
};

struct rps_model;

struct rps_model_ops {
    enum rps_model_kind kind;
    /* Tile of RPS_MODEL_TILE rows, `rows` of them real: logits
     * [labels][tile]. */
    void (*forward)(struct rps_model *model, const struct rps_model_input *tile,
            float *logits);
    /* The same tile: adds to the variables' gradients, writes the pooled
     * gradients of its real rows. logit_gradients [labels][tile]. */
    void (*backward)(struct rps_model *model,
            const struct rps_model_input *tile, const float *logit_gradients);
    void (*destroy)(struct rps_model *model);
};

/** Operators that every model has. A dump's pooling and what is beside it are
 * tables' own (dumping.c): here they have a name and a place. */
struct rps_model_operators {
    struct rps_operator loss; /* and its gradient */
    struct rps_operator loss_alone;
    struct rps_operator loss_gradient;
    struct rps_operator pooling[RPS_MODEL_TABLES_MAX];
    struct rps_operator pooling_alone[RPS_MODEL_TABLES_MAX];
    struct rps_operator concat[RPS_MODEL_TABLES_MAX];
};

struct rps_model {
    const struct rps_model_ops *ops;
    struct rps_model_shape shape;
    uint32_t labels; /* outputs of a sample */
    uint32_t table_count;
    struct rps_model_table tables[RPS_MODEL_TABLES_MAX];
    uint32_t variable_count;
    struct rps_variable variables[RPS_MODEL_VARIABLES_MAX];
    size_t variable_floats; /* of all variables, tails included */
    float *values;          /* [variable_floats]: theirs, side by side */
    float *gradients;       /* [variable_floats] */
    float *tile_dense;      /* [tile][dense] */
    float *tile_pooled[RPS_MODEL_TABLES_MAX]; /* [tile][bags][dim] */
    float *tile_labels;                       /* [tile][labels] */
    float logits[RPS_MODEL_LABELS_MAX * RPS_MODEL_TILE];
    float logit_gradients[RPS_MODEL_LABELS_MAX * RPS_MODEL_TILE];
    struct rps_model_input tile; /* in hand */
    double scale[2];             /* of the loss, of its gradient */
    double loss;                 /* of the batch in hand, so far */
    struct rps_model_operators operators;
    struct rps_operands_list operands; /* of all operators, the kind's, too */
    void *state;                       /* the kind's own */
};

/** DLRM: bottom MLP, dots of all pairs, top MLP. A table whose dim is not the
 * bottom MLP's last width has a projection, proj.<table>.weight. */
rps_status rps_dlrm_create(struct rps_model **model_out,
        const struct rps_model_shape *shape, struct rps_error *error);

/** The guide's two-table example: pooled rows, an MLP, two heads. */
rps_status rps_little_demo_create(struct rps_model **model_out,
        const struct rps_model_shape *shape, struct rps_error *error);

void rps_model_destroy(struct rps_model *model);

/**
 * Forward, and backward where labels and pooled_gradients are given: the
 * variables' gradients are overwritten. probabilities [rows][labels] and
 * loss_out may be NULL; the loss is scaled, summed over rows and outputs.
 */
void rps_model_run(struct rps_model *model, const struct rps_model_input *input,
        float *probabilities, double *loss_out);

/** Start values from (seed, variable's name, element) alone: uniform in each
 * variable's bound. */
void rps_model_start_values(struct rps_model *model, uint64_t seed);

/* For the kinds. */

/**
 * A model of this shape and of so many outputs: its tables, its state, zeroed
 * and then init()ed, and its tile buffers.
 */
rps_status rps_model_build(struct rps_model **model_out,
        const struct rps_model_ops *ops, const struct rps_model_shape *shape,
        uint32_t labels, size_t state_bytes,
        rps_status (*init)(struct rps_model *model, struct rps_error *error),
        struct rps_error *error);

/** Floats of a sample's pooled rows of one table. */
static inline size_t
rps_model_pooled_floats(const struct rps_model_table *table)
{
    return (size_t)table->bags * table->dim;
}

/** Add a variable of shape [out][in], or [out] with in = 0. It has its memory
 * once the model is built. */
struct rps_variable *rps_model_add_variable(struct rps_model *model,
        const char *name, uint32_t out, uint32_t in, float start_bound);

/** A variable's values, and its gradients, as an operand. */
struct rps_operand rps_model_values(
        const char *label, const struct rps_variable *variable);
struct rps_operand rps_model_gradients(
        const char *label, const struct rps_variable *variable);

/** Where the logits of outputs [first, first + 1) are, and their gradients. */
struct rps_operand_home rps_model_logits_home(
        const struct rps_model *model, uint32_t first);
struct rps_operand_home rps_model_logit_gradients_home(
        const struct rps_model *model, uint32_t first);

/** JSON; static. */
const char *rps_model_pooling_attributes(const struct rps_model_table *table);

/** The loss; rps_model_build() does it. */
void rps_model_describe_loss(struct rps_model *model);

/** Where a table's pooled rows are: a part of another tensor, which makes its
 * pooling a fused one; or with home.of NULL a tensor of their own. */
void rps_model_describe_pooling(struct rps_model *model, uint32_t t,
        const struct rps_operand_home *home);

#endif /* RPS_WORKER_MODEL_H */
