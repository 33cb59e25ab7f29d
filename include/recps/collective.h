/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective communication between the workers of a job, over Open MPI: who
 * am I, broadcast, allreduce, barrier. Every call but the first and the last
 * is made by all ranks, in the same order, with the same sizes.
 *
 * Library librecps-collective; it is there where the build found Open MPI.
 * Programs start under mpirun (or srun). docs/MIGRATION.md has the names that
 * Horovod and the guide give to these calls.
 *
 * Errors of every collective call, said once ("the usual"): RPS_E_INVAL (an
 * argument breaks its rule, or it is shut down), RPS_E_MISMATCH (ranks gave
 * other sizes), RPS_E_NOMEM, RPS_E_UNREACHABLE (MPI failed, in its words).
 * After an error the ranks no longer agree on where they are: end the group
 * with rps_collective_abort(). A rank that dies takes the group with it:
 * mpirun names it and ends the others.
 */
#ifndef RPS_COLLECTIVE_H
#define RPS_COLLECTIVE_H

#include <recps/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rps_collective rps_collective;

/** How an allreduce goes over the wire. */
enum rps_allreduce {
    /** What Open MPI takes for the size, or --mca coll_tuned_... say. */
    RPS_ALLREDUCE_DEFAULT = 0,
    /** A ring: scatter-reduce, then all-gather (Open MPI's algorithm 4). Each
     * rank sends to the next one alone, 2 (N - 1) / N of the payload. */
    RPS_ALLREDUCE_RING = 1
};

enum rps_reduce {
    RPS_REDUCE_SUM = 0,
    RPS_REDUCE_MEAN = 1 /**< the sum times 1 / N */
};

/** Filled by rps_collective_options_init(), then changed field by field. */
typedef struct rps_collective_options {
    uint32_t struct_bytes;        /**< set by _init; tells versions apart */
    enum rps_allreduce algorithm; /**< DEFAULT */
    /** Tensors of rps_collective_allreduce_many() are fused up to this size;
     * one that is larger goes alone. 16 MiB. */
    uint64_t bucket_bytes;
    /** Who stands where in the ring: order[place] is a rank, each once; NULL:
     * by rank. Ranks keep their numbers. */
    const uint32_t *order;
    uint32_t order_count; /**< number of ranks, where order is given */
} rps_collective_options;

/** One tensor of many. */
typedef struct rps_tensor {
    float *values; /**< [count] */
    size_t count;
} rps_tensor;

/**
 * Fill *options with the defaults.
 *
 * Threads: any.
 */
RPS_API void rps_collective_options_init(rps_collective_options *options);

/**
 * Join the group (MPI_Init_thread, MPI_THREAD_SERIALIZED). Once a process: MPI
 * does not start twice.
 *
 * All ranks give the same options. Sets variables of Open MPI's in this
 * process's environment before it starts. With no mpirun around it the group
 * has one rank.
 *
 * Owns:    copies *options; *collective_out is released by
 *          rps_collective_shutdown(). On error it is NULL and
 *          rps_collective_error(NULL) says why.
 * Threads: the one that ends it. Others may make the calls in between, one at
 *          a time; no other may read the environment meanwhile.
 * Errors:  RPS_E_INVAL (options; MPI was started before), RPS_E_MISMATCH
 *          (order_count is not the number of ranks), RPS_E_UNSUPPORTED (this
 *          MPI has no SERIALIZED threads, or no ring), the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_collective_initialize(
        rps_collective **collective_out, const rps_collective_options *options);

/**
 * Leave: wait for all ranks, then MPI_Finalize. NULL is allowed.
 *
 * Threads: the one that initialized; the last user.
 * Errors:  the usual. The handle is gone in any case.
 */
RPS_API rps_status rps_collective_shutdown(rps_collective *collective);

/**
 * End all ranks at once, without waiting for any: MPI_Abort. mpirun ends with
 * this code. Does not return.
 *
 * Units:   code is an exit code, 1..255.
 * Threads: the one that initialized.
 */
RPS_API void rps_collective_abort(rps_collective *collective, int code);

/**
 * The last failure of this process, in words; "" if there was none.
 *
 * Owns:    valid until the next call. collective is not looked at and may be
 *          NULL.
 * Threads: the one that initialized.
 */
RPS_API const char *rps_collective_error(const rps_collective *collective);

/**
 * This process among all: 0 to size - 1.
 *
 * Threads: any.
 */
RPS_API uint32_t rps_collective_rank(const rps_collective *collective);

/**
 * How many there are.
 *
 * Threads: any.
 */
RPS_API uint32_t rps_collective_size(const rps_collective *collective);

/**
 * This process among those on its host, by rank: which device it takes.
 *
 * Threads: any.
 */
RPS_API uint32_t rps_collective_local_rank(const rps_collective *collective);

/**
 * How many of them there are.
 *
 * Threads: any.
 */
RPS_API uint32_t rps_collective_local_size(const rps_collective *collective);

/**
 * Bytes of rank `root` to all.
 *
 * Shapes:  data[bytes], the same size on every rank.
 * Owns:    borrows data for the call.
 * Threads: the one that initialized.
 * Errors:  RPS_E_INVAL (no such root); the usual: data unspecified.
 */
RPS_API RPS_NODISCARD rps_status rps_collective_broadcast(
        rps_collective *collective, void *data, size_t bytes, uint32_t root);

/**
 * Sum (or mean) over all ranks, in place: the same bits on every rank.
 *
 * Shapes:  values[count] f32.
 * Owns:    borrows values for the call.
 * Threads: the one that initialized.
 * Errors:  the usual: values unspecified.
 */
RPS_API RPS_NODISCARD rps_status rps_collective_allreduce(
        rps_collective *collective, float *values, size_t count,
        enum rps_reduce reduce);

/**
 * The same of many tensors, fused into buckets of bucket_bytes: what a
 * distributed optimizer does with its gradients before it steps.
 *
 * Shapes:  tensors[n], each values[count] f32.
 * Owns:    borrows them for the call; keeps a buffer of a bucket's size.
 * Threads: the one that initialized.
 * Errors:  the usual: values unspecified.
 */
RPS_API RPS_NODISCARD rps_status rps_collective_allreduce_many(
        rps_collective *collective, const rps_tensor *tensors, size_t n,
        enum rps_reduce reduce);

/**
 * Wait until every rank is here.
 *
 * Threads: the one that initialized.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_collective_barrier(
        rps_collective *collective);

#ifdef __cplusplus
}
#endif

#endif /* RPS_COLLECTIVE_H */
