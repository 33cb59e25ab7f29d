/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on tensors, forward and backward: what models are made of. Each
 * call checks its tensors, then gives one operation to the stream, or several
 * where fusion is off, and returns before it is done.
 *
 * Tensors of every call, unless it says otherwise:
 * - All lie on the stream's device. Elements are f32; shapes are as said, with
 *   `…` for any dimensions, the same wherever it stands in one call. A
 *   dimension may be 0.
 * - An input may have any strides. A kernel that cannot walk them gets a
 *   contiguous copy, counted in profiles as "contiguous".
 * - An output's last dimension has stride 1, and rows (all dimensions but the
 *   last) do not overlap: it may be a slice of a wider tensor. It shares no
 *   memory with an input or another output, unless the call says "in place",
 *   and then it is that input, with its shape and strides. What does is
 *   refused; slices that lie between each other share none.
 * - A view lies in the memory that it is a view of; one that leaves it is
 *   refused.
 * - NULL is an absent tensor where the call says that it may be.
 *
 * Indices and counts in device memory (slots, starts) are not checked before
 * the operation runs: one beyond its range reads zeros, or is left out.
 *
 * Bits. A result depends on the values, the shapes and the options alone:
 * never on strides, addresses, the instruction set, other streams, whether the
 * step was compiled, or how often it loops. Matrix products are OpenBLAS's,
 * whose sum orders depend on the whole product's shape, its number of threads
 * and its CPU type. `deterministic` takes the first two out: products are
 * computed in tiles of RPS_NPU_TILE_ROWS rows, the last one padded with zeros,
 * on one thread, and sums over rows add tile by tile. Row i then depends on
 * its place i mod RPS_NPU_TILE_ROWS and no more, and fused operators give the
 * bits of those that they hold.
 *
 * Errors, said once ("the usual"): RPS_E_INVAL (a shape, type or device that
 * breaks the call's rule: the words name the operator, the tensor, what it is
 * and what it must be), those of npu.h for work that is given to a stream
 * (RPS_E_NOMEM; of the stream's failed work).
 */
#ifndef RPS_NPU_OPS_H
#define RPS_NPU_OPS_H

#include <recps/npu_tensor.h>
#include <recps/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tile of a deterministic product. */
#define RPS_NPU_TILE_ROWS 64u

/** In which dtype factors of products are taken. */
enum rps_npu_precision_mode {
    RPS_NPU_PRECISION_ORIGIN = 0, /**< as they are */
    /** rounded to bf16, to nearest even; products are exact, sums are f32, and
     * so are results, weights and everything that is no product */
    RPS_NPU_PRECISION_MIXED = 1
};

/** How sums and functions are computed. */
enum rps_npu_implmode {
    /** f32 sums; exp and tanh in f32, within some ulp */
    RPS_NPU_IMPL_HIGH_PERFORMANCE = 0,
    /** f64 sums, rounded once; the C library's exp and tanh, in f64 */
    RPS_NPU_IMPL_HIGH_PRECISION = 1
};

/** Filled by rps_npu_ops_options_init(), then changed field by field. */
typedef struct rps_npu_ops_options {
    uint32_t struct_bytes; /**< set by _init; tells versions apart */
    bool deterministic;    /**< false */
    bool fusion;           /**< true: as one operation where there is a form */
    enum rps_npu_precision_mode precision_mode; /**< origin */
    enum rps_npu_implmode implmode;             /**< high_performance */
} rps_npu_ops_options;

/** Fill *options with the defaults. Threads: any. */
RPS_API void rps_npu_ops_options_init(rps_npu_ops_options *options);

#define RPS_NPU_BLAS_THREADS_MAX 1024u

/**
 * Threads of a matrix product, in the whole process. One, unless this call or
 * OPENBLAS_NUM_THREADS in the environment says otherwise before the first
 * product; `deterministic` refuses more.
 *
 * Threads: any, while no product runs.
 * Errors:  RPS_E_INVAL: 0, or above RPS_NPU_BLAS_THREADS_MAX.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_set_blas_threads(uint32_t threads);

/** What every operator takes: a small value that the caller keeps. */
typedef struct rps_npu_ops {
    rps_npu_stream *stream; /**< borrowed */
    rps_npu_ops_options options;
    /** Whose operators they are, e.g. "top.2": profiles show "top.2/linear".
     * NULL: the operator's name alone. Copied by each call. */
    const char *name;
} rps_npu_ops;

/* --- elementwise ---------------------------------------------------------- */

enum rps_npu_function {
    RPS_NPU_RELU = 0, /**< max(x, 0); a NaN stays one */
    RPS_NPU_GELU = 1, /**< x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    RPS_NPU_TANH = 2,
    RPS_NPU_SIGMOID = 3 /**< 1 / (1 + exp(-x)) */
};

/**
 * y = f(x)
 *
 * Shapes:  x, y […]; in place: y may be x.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_apply(const rps_npu_ops *ops,
        enum rps_npu_function function, const rps_npu_tensor *x,
        const rps_npu_tensor *y);

/**
 * dx = f'(x) dy, from what the forward call kept: its x for gelu, its y for
 * the others.
 *
 * Shapes:  kept, dy, dx […]; in place: dx may be dy.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_apply_backward(const rps_npu_ops *ops,
        enum rps_npu_function function, const rps_npu_tensor *kept,
        const rps_npu_tensor *dy, const rps_npu_tensor *dx);

/**
 * y = a + b
 *
 * Shapes:  a, b, y […]; in place: y may be a, b or both.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_add(const rps_npu_ops *ops,
        const rps_npu_tensor *a, const rps_npu_tensor *b,
        const rps_npu_tensor *y);

/**
 * y = x factor; where `device_factor` is not NULL, that number is read when
 * the operation runs, and multiplied in f64 with `factor` first.
 *
 * Shapes:  x, y […]; in place: y may be x; device_factor f64 [1].
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_scale(const rps_npu_ops *ops,
        const rps_npu_tensor *x, double factor,
        const rps_npu_tensor *device_factor, const rps_npu_tensor *y);

/**
 * y = value
 *
 * Shapes:  y […].
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_fill(
        const rps_npu_ops *ops, float value, const rps_npu_tensor *y);

/**
 * y = x, from f32 or bf16 to f32 or bf16, to nearest, ties to even. With one
 * dtype it copies a view's elements to another view.
 *
 * Shapes:  x, y […], f32 or bf16 each; or both of any one dtype.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_cast(const rps_npu_ops *ops,
        const rps_npu_tensor *x, const rps_npu_tensor *y);

/**
 * Side by side along the last dimension: y = [x0, x1, …]. A model that can
 * writes its parts into slices of y at once, and needs no concat.
 *
 * Shapes:  x[i] [rows][columns i]; y [rows][sum of columns]; count 1 to 15.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_concat(const rps_npu_ops *ops,
        const rps_npu_tensor *x, uint32_t count, const rps_npu_tensor *y);

/**
 * The way back: [y0, y1, …] = x.
 *
 * Shapes:  x [rows][sum of columns]; y[i] [rows][columns i]; count 1 to 15.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_split(const rps_npu_ops *ops,
        const rps_npu_tensor *x, const rps_npu_tensor *y, uint32_t count);

/* --- linear --------------------------------------------------------------- */

enum rps_npu_activation {
    RPS_NPU_ACTIVATION_NONE = 0,
    RPS_NPU_ACTIVATION_RELU = 1,
    RPS_NPU_ACTIVATION_GELU = 2
};

/** y = act(z), z = x W^T + b; W as PyTorch's nn.Linear has it. */
typedef struct rps_npu_linear {
    const rps_npu_tensor *x;      /**< [rows][in], f32 or bf16; NULL: z = b */
    const rps_npu_tensor *weight; /**< [out][in], the same; NULL with x */
    const rps_npu_tensor *bias;   /**< [out]; NULL: none */
    enum rps_npu_activation activation;
    /** z [rows][out], kept for gelu's backward; NULL: not kept. */
    const rps_npu_tensor *z;
    const rps_npu_tensor *y; /**< [rows][out] */
} rps_npu_linear;

/**
 * A layer. With fusion one operation, "linear + bias + relu"; else bias, the
 * product that is added to it, and the activation.
 *
 * Threads: any.
 * Errors:  the usual; RPS_E_INVAL: neither x nor bias.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_linear_forward(
        const rps_npu_ops *ops, const rps_npu_linear *linear);

/** dz = act'(z) dy; dx = dz W; dW = dz^T x; db = sum of dz over rows. */
typedef struct rps_npu_linear_gradient {
    const rps_npu_tensor *x;      /**< as forward; NULL: none */
    const rps_npu_tensor *weight; /**< as forward; NULL: without dx */
    enum rps_npu_activation activation;
    /** What the activation's backward needs [rows][out]: y for relu, z for
     * gelu; NULL for none. */
    const rps_npu_tensor *kept;
    const rps_npu_tensor *dy;      /**< [rows][out]; not changed */
    const rps_npu_tensor *dx;      /**< [rows][in]; NULL: not wanted */
    const rps_npu_tensor *dweight; /**< [out][in]; NULL: not wanted */
    const rps_npu_tensor *dbias;   /**< [out]; NULL: not wanted */
    bool accumulate;               /**< dweight, dbias: += instead of = */
} rps_npu_linear_gradient;

/**
 * A layer's backward. With fusion one operation, else one for the activation
 * and one for each gradient.
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_linear_backward(
        const rps_npu_ops *ops, const rps_npu_linear_gradient *gradient);

/* --- loss ------------------------------------------------------------------
 */

/**
 * Binary cross entropy on logits, in f64 in every mode:
 * loss = scale[0] * sum of w (max(x, 0) - x y + log(1 + exp(-|x|)))
 * dx = scale[1] * w (1 / (1 + exp(-x)) - y)
 */
typedef struct rps_npu_bce {
    const rps_npu_tensor *logits; /**< x [rows][labels] */
    const rps_npu_tensor *labels; /**< y [rows][labels] */
    /** w [rows]; 0: a row of padding, which is not read. NULL: 1 */
    const rps_npu_tensor *weights;
    /** f64 [2], read when the operation runs: the loss's factor, e.g. 1 / rows
     * of the step's batch, and the gradient's, e.g. that times the loss scale.
     * NULL: 1 and 1 */
    const rps_npu_tensor *scale;
    const rps_npu_tensor *loss;    /**< f64 [1]; NULL: not wanted */
    bool accumulate;               /**< loss: += instead of = */
    const rps_npu_tensor *dlogits; /**< dx; NULL: not wanted */
} rps_npu_bce;

/**
 * Loss, gradient or both; with fusion both are one operation.
 *
 * Bits:    the sum adds RPS_NPU_TILE_ROWS rows, a row's labels one after the
 *          other, then the tiles, each times scale[0].
 * Threads: any.
 * Errors:  the usual; RPS_E_INVAL: neither loss nor dlogits.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_bce_with_logits(
        const rps_npu_ops *ops, const rps_npu_bce *bce);

/* --- dot interaction --------------------------------------------------------
 */

/**
 * The dots of every pair of a row's vectors, behind the first vector:
 * y = [v0, v1.v0, v2.v0, v2.v1, v3.v0, …], pairs i > j, i the slower.
 *
 * Shapes:  v [rows][n][width]; y [rows][width + n (n - 1) / 2] with
 *          `first`, else [rows][n (n - 1) / 2]; n >= 1.
 * Bits:    each sum adds in the order of the width.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_dots(const rps_npu_ops *ops,
        const rps_npu_tensor *v, bool first, const rps_npu_tensor *y);

/**
 * dv i = sum over j != i of dy(i, j) v j, in the order of j; with `first` plus
 * the first `width` of dy, for i = 0.
 *
 * Shapes:  v, dv [rows][n][width]; dy as y.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_dots_backward(const rps_npu_ops *ops,
        const rps_npu_tensor *v, bool first, const rps_npu_tensor *dy,
        const rps_npu_tensor *dv);

/* --- pooling ----------------------------------------------------------------
 */

/**
 * Bags of tokens: bag b has tokens [starts[b], starts[b + 1]), token t is row
 * slots[t]. Its capacity in tokens is fixed; those from starts[bags] on are
 * not there.
 */
typedef struct rps_npu_bags {
    enum rps_pooling pooling;     /**< sum, mean (/ n) or sqrtn (/ sqrt(n)) */
    const rps_npu_tensor *slots;  /**< i32 [tokens]; NULL: token t is row t */
    const rps_npu_tensor *starts; /**< i32 [bags + 1], ascending from 0 */
} rps_npu_bags;

/**
 * A bag's rows, summed in the order of its tokens, then divided where it has
 * more than one; no token: zeros. `pooled` is often a slice of what the next
 * operator reads: with fusion it is written there at once, "pooling + concat";
 * else into a tensor of its own, which is copied.
 *
 * Shapes:  rows [n][dim]; pooled [bags][dim], or [r][b][dim] with
 *          r b = bags.
 * Threads: any.
 * Errors:  the usual; RPS_E_INVAL: pooling none.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_pool_bags(const rps_npu_ops *ops,
        const rps_npu_bags *bags, const rps_npu_tensor *rows,
        const rps_npu_tensor *pooled);

/**
 * The way back: each token gets its bag's gradient, divided as the bag was.
 * Tokens that are in no bag get nothing: what stood there stays.
 *
 * Shapes:  dpooled as pooled; dtokens [tokens][dim], by token, not by row:
 *          who wants sums a row adds those that share a slot. slots: not read.
 * Threads: any.
 * Errors:  the usual; RPS_E_INVAL: pooling none.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_pool_bags_backward(
        const rps_npu_ops *ops, const rps_npu_bags *bags,
        const rps_npu_tensor *dpooled, const rps_npu_tensor *dtokens);

/**
 * Rows to their places: y[places[i]] = row i of those that are packed in
 * packed[header[0]], packed[header[0] + dim], …, header[1] of them. All
 * numbers are read when the operation runs: so a step of fixed shape moves few
 * rows or many. What is not wholly in `packed`, or has no place in y, is left
 * out.
 *
 * Shapes:  packed [floats]; header i32 [2]; places i32 [n], distinct;
 *          y [rows][dim].
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_scatter_rows(const rps_npu_ops *ops,
        const rps_npu_tensor *packed, const rps_npu_tensor *header,
        const rps_npu_tensor *places, const rps_npu_tensor *y);

/* --- dropout ----------------------------------------------------------------
 */

/** Element e of a site in step s is dropped by (seed, site, s, e) alone, so
 * that the backward, a recomputation and a part of a batch draw the same. */
typedef struct rps_npu_dropout {
    double rate; /**< 0 <= rate < 1; 0: nothing is done where y is x */
    uint64_t seed;
    uint64_t site; /**< which of the model's dropouts */
    /** f64 [1], whole, read when the operation runs. */
    const rps_npu_tensor *step;
    uint64_t first; /**< x's first element is the site's element `first` */
} rps_npu_dropout;

/**
 * y = x / (1 - rate), or 0 where it is dropped. Backward is the same call,
 * from dy to dx.
 *
 * Shapes:  x, y […]; in place: y may be x.
 * Threads: any.
 * Errors:  the usual; RPS_E_INVAL (the rate).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_dropout_apply(const rps_npu_ops *ops,
        const rps_npu_dropout *dropout, const rps_npu_tensor *x,
        const rps_npu_tensor *y);

/* --- loss scale ------------------------------------------------------------
 */

/**
 * x = x factor, and *finite: was every element finite before? With several
 * tensors, `accumulate` for all but the first ones: *finite stays 0 where it is
 * 0. Without a factor (NULL) x is only looked at.
 *
 * Shapes:  x […], in place; factor f64 [1], a power of two as a rule, read
 *          when the operation runs; finite i32 [1].
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_unscale(const rps_npu_ops *ops,
        const rps_npu_tensor *x, const rps_npu_tensor *factor,
        const rps_npu_tensor *finite, bool accumulate);

/* --- optimizers ------------------------------------------------------------
 */

/**
 * *counter += 1, unless *finite is 0: a step's number, kept on the device so
 * that a compiled step counts. Before the optimizers: their first step is 1.
 *
 * Shapes:  counter f64 [1]; finite i32 [1] or NULL.
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_count(const rps_npu_ops *ops,
        const rps_npu_tensor *counter, const rps_npu_tensor *finite);

enum rps_npu_optimizer_kind {
    RPS_NPU_SGD = 0,  /**< w -= lr g */
    RPS_NPU_ADAM = 1, /**< weight decay is added to the gradient */
    RPS_NPU_ADAMW = 2 /**< weight decay is w -= lr weight_decay w, before */
};

/**
 * The laws are PyTorch's:
 * m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2
 * w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
 */
typedef struct rps_npu_optimizer {
    uint32_t struct_bytes; /**< set by _init; tells versions apart */
    enum rps_npu_optimizer_kind kind;
    double beta1;
    double beta2;
    double epsilon;
    double weight_decay;
    /** f64 [1], read when the operation runs. */
    const rps_npu_tensor *learning_rate;
    const rps_npu_tensor *step; /**< t: f64 [1], likewise; NULL for sgd */
    /** i32 [1]: 0 when the operation runs: nothing changes. NULL: 1 */
    const rps_npu_tensor *finite;
} rps_npu_optimizer;

/**
 * PyTorch's numbers: betas 0.9 and 0.999, epsilon 1e-8, weight decay 0.01 for
 * adamw, else 0. Tensors: NULL.
 *
 * Threads: any.
 */
RPS_API void rps_npu_optimizer_init(
        rps_npu_optimizer *optimizer, enum rps_npu_optimizer_kind kind);

/**
 * One step of one variable.
 *
 * Shapes:  weight, gradient, m, v […]; m, v start as zeros; NULL for sgd.
 *          weight, m and v are contiguous, and changed.
 * Threads: any.
 * Errors:  the usual; RPS_E_INVAL (numbers out of range).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_optimizer_step(const rps_npu_ops *ops,
        const rps_npu_optimizer *optimizer, const rps_npu_tensor *weight,
        const rps_npu_tensor *gradient, const rps_npu_tensor *m,
        const rps_npu_tensor *v);

#ifdef __cplusplus
}
#endif

#endif /* RPS_NPU_OPS_H */
