/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a table is: its spec, and the small enums that travel with it. Enum
 * values are on the wire and in checkpoints by name; never renumber.
 */
#ifndef RPS_TYPES_H
#define RPS_TYPES_H

#include <recps/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RPS_NAME_BYTES_MAX   128u        /**< of a table's name */
#define RPS_DIM_MAX          8192u       /**< floats of a row */
#define RPS_VOCABULARY_MAX   1000000000u /**< device_vocabulary_size */
#define RPS_DENSE_ROW_FLOATS 1024u       /**< elements in a dense table's row */
#define RPS_USED_TIMES_MAX   65535u      /**< min_used_times */
#define RPS_SKETCH_TIMES_MAX 255u        /**< the same, with the sketch */
#define RPS_COLD_STEPS_MAX   8388608u    /**< max_cold_steps: 2^23 */
#define RPS_REASON_BYTES     160u        /**< of rps_start.reason, with its 0 */

/** How a value is stored or sent. */
enum rps_value {
    RPS_VALUE_F32 = 0,
    RPS_VALUE_F16 = 1,
    RPS_VALUE_BF16 = 2,
    RPS_VALUE_I8 = 3
};

/** Width of the caller's ids; int32 is widened with its sign. */
enum rps_key_dtype {
    RPS_KEY_INT64 = 0,
    RPS_KEY_INT32 = 1
};

/** How the rows of one bag become one row. */
enum rps_pooling {
    RPS_POOLING_NONE = 0,
    RPS_POOLING_SUM = 1,
    RPS_POOLING_MEAN = 2,
    RPS_POOLING_SQRTN = 3
};

enum rps_optimizer {
    RPS_OPTIMIZER_SGD = 0,
    RPS_OPTIMIZER_MOMENTUM = 1,
    RPS_OPTIMIZER_ADAGRAD = 2,
    RPS_OPTIMIZER_ROWWISE_ADAGRAD = 3,
    RPS_OPTIMIZER_ADAM = 4, /**< lazy: only rows in the push move */
    RPS_OPTIMIZER_ADAMW = 5,
    RPS_OPTIMIZER_ADAM_CATCHUP = 6,
    RPS_OPTIMIZER_ADAMW_CATCHUP = 7,
    RPS_OPTIMIZER_FTRL = 8,
    RPS_OPTIMIZER_RMSPROP = 9,
    RPS_OPTIMIZER_COUNT
};

enum rps_initializer {
    RPS_INITIALIZER_ZEROS = 0,
    RPS_INITIALIZER_CONSTANT = 1,         /**< every column: initializer_low */
    RPS_INITIALIZER_UNIFORM = 2,          /**< in [initializer_low, _high) */
    RPS_INITIALIZER_NORMAL = 3,           /**< mean _low, deviation _high */
    RPS_INITIALIZER_TRUNCATED_NORMAL = 4, /**< the same, within 2 deviations */
    /** Not in a table's spec: rps_table_spec_variance_scaling() makes one of
     * the others of it. */
    RPS_INITIALIZER_VARIANCE_SCALING = 5,
    RPS_INITIALIZER_COUNT
};

/** What variance scaling divides by: device_vocabulary_size, dim, or half of
 * their sum. */
enum rps_fan {
    RPS_FAN_IN = 0,
    RPS_FAN_OUT = 1,
    RPS_FAN_AVG = 2
};

/** What variance scaling draws from. */
enum rps_distribution {
    RPS_DISTRIBUTION_TRUNCATED_NORMAL = 0,
    RPS_DISTRIBUTION_NORMAL = 1,
    RPS_DISTRIBUTION_UNIFORM = 2
};

/** How a client reaches a server. */
enum rps_transport {
    RPS_TRANSPORT_AUTO = 0, /**< shm on this host, else tcp; see client.h */
    RPS_TRANSPORT_TCP = 1,
    RPS_TRANSPORT_UNIX = 2, /**< a Unix socket: the server is on this host */
    RPS_TRANSPORT_SHM = 3,  /**< shared memory: the same */
    RPS_TRANSPORT_LOCAL = 4 /**< in process; there is no cluster */
};
#define RPS_TRANSPORT_COUNT 5

/** What happens when memory_limit is reached. */
enum rps_on_full {
    RPS_ON_FULL_REFUSE = 0,
    RPS_ON_FULL_EVICT_LRU = 1,
    RPS_ON_FULL_EVICT_LFU = 2
};

/** What a save of async and bounded is a state of. */
enum rps_cut_of {
    /** One step of all replicas: they wait at its end until every server has
     * taken its cut, so that the data position is exact. */
    RPS_CUT_JOB = 0,
    /** Each server's own moment: nobody waits. */
    RPS_CUT_LOCAL = 1
};

/** How pushes of keys without a row are counted. */
enum rps_admission {
    RPS_ADMISSION_EXACT = 0, /**< each key, up to 65535 */
    RPS_ADMISSION_SKETCH = 1 /**< in fixed memory; may count too much */
};

/**
 * Everything that defines a table. Filled by rps_table_spec_init(), then
 * changed field by field: every default is a number, so 0 means 0.
 *
 * Identity (a second request with another value is MISMATCH): name, dim,
 * value_dtype, optimizer, initializer*, seed, dense_elements. The rest is
 * policy: a second request with another value is MISMATCH, too;
 * rps_alter_table() changes it.
 */
typedef struct rps_table_spec {
    uint32_t struct_bytes; /**< set by _init; tells versions apart */
    char name[RPS_NAME_BYTES_MAX + 1]; /**< [0-9A-Za-z_.], no leading dot */
    uint32_t dim;                      /**< floats a row, 1..RPS_DIM_MAX */
    enum rps_value value_dtype;        /**< in memory: F32, F16 or BF16 */
    enum rps_key_dtype key_dtype;
    uint64_t device_vocabulary_size; /**< 1..10^9; a hint, not a bound */
    uint64_t seed;                   /**< of first values; full 64 bits */
    uint64_t dense_elements;         /**< > 0: a dense variable of so many */

    enum rps_initializer initializer;
    float initializer_low;  /**< uniform low, constant, normal mean */
    float initializer_high; /**< uniform high, normal standard deviation */

    enum rps_optimizer optimizer;
    /* Those without a part in the optimizer stay at their defaults. */
    float learning_rate;       /**< used where a push carries NaN; >= 0 */
    float initial_accumulator; /**< adagrad, rowwise_adagrad, ftrl, rmsprop */
    float beta1;               /**< adam*: 0 <= beta1 < 1 */
    float beta2;               /**< adam*: 0 <= beta2 < 1 */
    float epsilon;             /**< adam*, rowwise_adagrad, rmsprop: 0..1 */
    float weight_decay;        /**< 0..10; not ftrl, not adam_catchup */
    float momentum;            /**< momentum, rmsprop: 0 <= momentum < 1 */
    uint32_t nesterov;         /**< 0 or 1; momentum */
    float rho;                 /**< rmsprop: 0 <= rho < 1 */
    float l1;                  /**< ftrl: 0..10^4, as are the next two */
    float l2;
    float l2_shrinkage;
    float learning_rate_power; /**< ftrl: -1..0 */
    float clip_value;          /**< elements into [-clip, clip]; 0 = off */
    float clip_norm;           /**< a row's 2-norm at most this; 0 = off */

    float default_value; /**< each column of an unadmitted or absent row */
    uint32_t stochastic_rounding; /**< 0 or 1; of f16 and bf16 rows */
    /* Which keys get a row, and which rows leave (docs/TABLE.md). */
    enum rps_admission admission;
    uint64_t min_used_times; /**< pushes until a key gets a row; 0, 1: one */
    uint64_t max_cold_secs;  /**< rows idle for longer leave; 0: never */
    uint64_t max_cold_steps; /**< the same in steps; one of the two */
    uint64_t keep_min_rows;  /**< never fewer because of eviction */
    uint64_t memory_limit;   /**< bytes, on each server; 0: none */
    enum rps_on_full on_full;
} rps_table_spec;

/**
 * Fill *spec with every default for this optimizer.
 *
 * Defaults: uniform ±0.05, seed 0, learning_rate 0.001 (adagrad 0.001, sgd
 * 0.01), accumulators 0.1 (rmsprop 0), Adam betas 0.9 and 0.999, epsilon
 * 1e-8 (rmsprop 1e-10), AdamW weight_decay 0.004, momentum 0.9 (rmsprop 0),
 * rho 0.9, learning_rate_power -0.5, device_vocabulary_size 1. A name that is
 * too long is cut to a name that rps_table_spec_check() refuses; NULL is the
 * empty name, which it refuses, too. A spec that is NULL is allowed: nothing is
 * done.
 *
 * Owns:    copies name.
 * Threads: any.
 */
RPS_API void rps_table_spec_init(rps_table_spec *spec, const char *name,
        uint32_t dim, enum rps_optimizer optimizer);

/**
 * Set the initializer of *spec to variance scaling: deviation
 * sqrt(scale / max(1, fan)), from dim and device_vocabulary_size as they are
 * now. What is kept, and part of the table's identity, are plain numbers:
 * initializer, initializer_low and initializer_high.
 *
 * Units:   scale > 0, at most 1e30; 1 is usual.
 * Threads: any.
 * Errors:  RPS_E_INVAL (an argument out of range, dim 0, spec NULL): *spec
 *          unchanged.
 */
RPS_API RPS_NODISCARD rps_status rps_table_spec_variance_scaling(
        rps_table_spec *spec, float scale, enum rps_fan fan,
        enum rps_distribution distribution);

/**
 * Say whether a table of this spec can be made by this build.
 *
 * Owns:    writes at most why_bytes of text, NUL included, into why: the
 *          field, its value, what is allowed. why may be NULL.
 * Threads: any.
 * Errors:  RPS_E_INVAL (a value out of range, spec NULL), RPS_E_UNSUPPORTED (a
 * legal value that this build does not do).
 */
RPS_API RPS_NODISCARD rps_status rps_table_spec_check(
        const rps_table_spec *spec, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif /* RPS_TYPES_H */
