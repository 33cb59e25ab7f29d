/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as operators on a device: what model.h's kinds compute with plain
 * calls on the host, here given to a stream, one part of a batch after the
 * other. It knows neither queue nor server: device_step.c and
 * device_predict.c bring inputs and take results.
 *
 * Variables and their gradients are each one memory, as the model's are, so
 * that one copy moves all of them.
 *
 * Memory for time: a hidden layer's output is needed again for its gradients.
 * It stays on the device; or is forgotten and computed again from the nearest
 * output that was kept, every ceil(sqrt(layers))th (recompute); or is copied to
 * the host on a second stream and comes back, a layer ahead (offload). The
 * bits are the same each way.
 *
 * Errors of every call: the operators' own (npu_ops.h), in rps_npu_error().
 */
#ifndef RPS_WORKER_NET_H
#define RPS_WORKER_NET_H

#include "client/worker/model.h"

#include <recps/npu_ops.h>

#include <stdbool.h>

struct rps_net_options {
    rps_npu_ops_options ops;
    bool recompute;
    bool offload;
    double dropout; /* of hidden layers' outputs; 0: none */
    uint64_t seed;  /* of what it drops */
};

struct rps_net_layer {
    uint32_t in; /* 0: the output is the bias alone */
    uint32_t out;
    bool relu;
    uint32_t weight; /* variables of the model; unused where in is 0 */
    uint32_t bias;
    char name[RPS_VARIABLE_NAME_BYTES]; /* "top.2" */
};

struct rps_net_mlp {
    uint32_t layer_count;
    struct rps_net_layer layers[RPS_MODEL_LAYERS_MAX];
};

struct rps_net;

/** An output was copied to the host, or back: for who looks (dumps). */
struct rps_net_moved {
    const struct rps_net *net;
    char name[RPS_VARIABLE_NAME_BYTES]; /* of its layer */
    uint64_t shape[2];                  /* f32 */
    uint64_t address;                   /* on the device */
    const void *bytes;                  /* of the host */
    bool back;
};

/** A copy of an output in the host's memory: as long as what was captured. */
struct rps_net_kept {
    void *bytes;
    struct rps_net_moved sent, returned;
    struct rps_net_kept *next;
};

struct rps_net {
    const struct rps_model *model; /* borrowed */
    rps_npu *npu;                  /* borrowed */
    rps_npu_stream *stream;        /* borrowed; operators */
    rps_npu_stream *copies;        /* borrowed; what is offloaded */
    struct rps_net_options options;
    rps_npu_ops ops;
    rps_npu_tensor values;    /* [variable_floats], as model->values */
    rps_npu_tensor gradients; /* the same; none where nothing is trained */
    struct rps_net_kept *kept;
    /* called on the stream of copies, in what is captured from then on; NULL:
     * nobody looks */
    void (*moved)(void *context, const struct rps_net_moved *moved);
    void *moved_context;
    struct rps_net_mlp mlps[3]; /* dlrm: bottom, top; little_demo: trunk, heads
                                 */
    uint32_t projections[RPS_MODEL_TABLES_MAX]; /* variable + 1; 0: none */
};

/** Of one table. */
struct rps_net_bags {
    rps_npu_tensor rows;     /* [n][dim] */
    rps_npu_tensor slots;    /* i32 [tokens]; none: token t is row t */
    rps_npu_tensor starts;   /* i32 [rows of the part * bags + 1] */
    rps_npu_tensor gradient; /* [rows of the part][bags][dim], written */
};

/** Rows [first, first + rows) of a batch. */
struct rps_net_part {
    uint64_t first;
    uint64_t rows;
    rps_npu_tensor dense;  /* [rows][dense]; not looked at without features */
    rps_npu_tensor labels; /* [rows][labels] */
    rps_npu_tensor scale;  /* f64 [2]: of the loss, of its gradient */
    rps_npu_tensor step;   /* f64 [1]: the global step, for dropout */
    rps_npu_tensor loss;   /* f64 [1], written */
    bool accumulate;       /* loss and variables' gradients: += */
    struct rps_net_bags tables[RPS_MODEL_TABLES_MAX];
};

/**
 * Variables are allocated here, before anything else; gradients, where it
 * trains, are zeros. Finish it in any case.
 */
rps_status rps_net_init(struct rps_net *net, const struct rps_model *model,
        rps_npu_stream *stream, rps_npu_stream *copies,
        const struct rps_net_options *options, bool trains);

/** Nothing that it gave to streams may run any more. A zeroed one is fine. */
void rps_net_finish(struct rps_net *net);

/** What offloading keeps in the host's memory is given back: what was captured
 * is destroyed. */
void rps_net_drop_kept(struct rps_net *net);

/** Forward, loss and backward of a part: its loss, its bags' gradients and
 * the variables' gradients. */
rps_status rps_net_train(struct rps_net *net, const struct rps_net_part *part);

/** Forward alone. probabilities [rows][labels], written. */
rps_status rps_net_predict(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *probabilities);

/** A view of [shape] at `offset` bytes from a tensor's first element; released
 * like any. */
rps_npu_tensor rps_net_view(const rps_npu_tensor *tensor, uint64_t offset,
        enum rps_npu_dtype dtype, uint32_t ndim, const uint64_t *shape);

/* For the kinds. */

/** The outputs of an MLP's layers between its forward and its backward. */
struct rps_net_tape {
    rps_npu_tensor outputs[RPS_MODEL_LAYERS_MAX];
    struct rps_net_kept *kept[RPS_MODEL_LAYERS_MAX]; /* offloaded; or NULL */
    rps_npu_event *back; /* outputs of layer `coming` are on their way */
    uint32_t coming;
};

/** Layers by their variables' names, <prefix>.<2 l>.weight and .bias, which
 * begin at *variable; it moves on. */
void rps_net_mlp_init(struct rps_net *net, struct rps_net_mlp *mlp,
        const char *prefix, uint32_t in, const struct rps_model_layers *layers,
        bool relu_last, uint32_t *variable);

/**
 * x [rows][in], NULL where the first layer has none; y [rows][out], which may
 * be a slice. trains: the tape keeps what the backward needs.
 */
rps_status rps_net_mlp_forward(struct rps_net *net,
        const struct rps_net_mlp *mlp, const struct rps_net_part *part,
        const rps_npu_tensor *x, const rps_npu_tensor *y, bool trains,
        struct rps_net_tape *tape);

/** dy [rows][out]; dx [rows][in] or NULL. The tape is empty afterwards. */
rps_status rps_net_mlp_backward(struct rps_net *net,
        const struct rps_net_mlp *mlp, const struct rps_net_part *part,
        const rps_npu_tensor *x, const rps_npu_tensor *dy,
        const rps_npu_tensor *dx, struct rps_net_tape *tape);

/** Drops what is left in a tape after a failure. */
void rps_net_tape_finish(struct rps_net_tape *tape);

/** A variable, or its gradient, by its place in the model. */
rps_npu_tensor rps_net_variable(const struct rps_net *net, uint32_t variable);
rps_npu_tensor rps_net_gradient(const struct rps_net *net, uint32_t variable);

/** A new f32 tensor of two or three dimensions. */
rps_status rps_net_matrix(struct rps_net *net, uint64_t rows, uint64_t columns,
        rps_npu_tensor *tensor_out);
rps_status rps_net_cube(struct rps_net *net, uint64_t rows, uint64_t n,
        uint64_t width, rps_npu_tensor *tensor_out);

/** Of part's table t, pooled into [rows][bags][dim], which may be a slice. */
rps_status rps_net_pool(struct rps_net *net, const struct rps_net_part *part,
        uint32_t t, const rps_npu_tensor *pooled);

/** Loss and dlogits [rows][labels] of logits. */
rps_status rps_net_loss(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *logits, const rps_npu_tensor *dlogits);

/** Of logits, [rows][labels] both; with deterministic the host's bits. */
rps_status rps_net_probabilities(struct rps_net *net,
        const rps_npu_tensor *logits, const rps_npu_tensor *probabilities);

/** The operators' name in profiles, until the next. */
const rps_npu_ops *rps_net_named(struct rps_net *net, const char *name);

/** What a kind has: train and predict of this very kind. */
struct rps_net_kind {
    void (*init)(struct rps_net *net);
    rps_status (*train)(struct rps_net *net, const struct rps_net_part *part);
    rps_status (*predict)(struct rps_net *net, const struct rps_net_part *part,
            const rps_npu_tensor *probabilities);
};
extern const struct rps_net_kind rps_net_dlrm;
extern const struct rps_net_kind rps_net_little_demo;

#endif /* RPS_WORKER_NET_H */
