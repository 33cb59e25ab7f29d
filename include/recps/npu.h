/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated NPU: a device with memory of its own, streams, events, a caching
 * memory pool, and compiled steps that run many times a host call.
 *
 * Library librecps-npu. Device memory is addressed by pointers that only the
 * device can follow: a host that dereferences one gets SIGSEGV. Copies are the
 * only way in and out. Work is given to streams and done by their threads in
 * the order in which it was given; calls return before it is done, but for
 * those that say otherwise.
 *
 * Every call that fails leaves words in rps_npu_error(): the operation, what
 * was wrong with it, what to do. Errors of every call, said once ("the
 * usual"): RPS_E_INVAL (an argument breaks its rule: a host pointer where a
 * device's is asked for, a range that leaves its allocation, another device's
 * object), RPS_E_NOMEM. Work that fails on a stream (a host function that
 * returns an error) ends what that stream still has to do; the first failure
 * is answered by every later call on the stream, until rps_npu_stream_reset().
 *
 * Threads, unless said otherwise: any, several at once; but one stream, step
 * or queue end is used by one thread at a time.
 */
#ifndef RPS_NPU_H
#define RPS_NPU_H

#include <recps/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RPS_NPU_DEVICES_MAX   64u
#define RPS_NPU_LOOP_SIZE_MAX 1000000u
#define RPS_NPU_NAME_BYTES    64u

typedef struct rps_npu rps_npu;
typedef struct rps_npu_stream rps_npu_stream;
typedef struct rps_npu_event rps_npu_event;
typedef struct rps_npu_step rps_npu_step;
typedef struct rps_npu_queue rps_npu_queue;

/* --- devices ------------------------------------------------------------- */

/** Filled by rps_npu_options_init(), then changed field by field. */
typedef struct rps_npu_options {
    uint32_t struct_bytes; /**< set by _init; tells versions apart */
    /** Capacity. 1 GiB; pages are taken from the host when they are used. */
    uint64_t memory_bytes;
    /** Of the link to the host, each direction. 0: as fast as the machine. */
    uint64_t link_bytes_per_second;
    uint64_t copy_latency_ns; /**< added to each copy over the link. 0 */
    /** Of the host thread, for each launch: an operation, a copy or a
     * compiled step, however many times it loops. Not for sets of a queue,
     * whose channel stays open. 0 */
    uint64_t launch_latency_ns;
} rps_npu_options;

/** Fill *options with the defaults. Threads: any. */
RPS_API void rps_npu_options_init(rps_npu_options *options);

/**
 * Take device `id` of this host. One process has a device at a time: another
 * one is refused until this one closes it or ends, however it ends.
 *
 * How many devices the host has says RPS_NPU_DEVICES (default 8). Processes
 * with another RPS_NPU_HOST (a name) are on another simulated host, with
 * devices of its own.
 *
 * Owns:    copies *options (NULL: the defaults); *npu_out is released by
 *          rps_npu_close(). On error it is NULL.
 * Threads: any.
 * Errors:  RPS_E_INVAL (no such device; options out of range), RPS_E_MISMATCH
 *          (the device is taken: the words name the process), RPS_E_NOMEM (no
 *          address space for memory_bytes).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_open(
        rps_npu **npu_out, uint32_t id, const rps_npu_options *options);

/**
 * Wait for its streams, then give everything back. Its streams, events, steps,
 * queues and tensors must be gone. NULL is allowed.
 *
 * Threads: one, and none uses it any more.
 */
RPS_API void rps_npu_close(rps_npu *npu);

/**
 * The number it was opened by.
 *
 * Threads: any.
 */
RPS_API uint32_t rps_npu_id(const rps_npu *npu);

/**
 * The last failure of a call on this thread, in words; "" if there was none.
 *
 * Owns:    valid until this thread's next call.
 * Threads: any.
 */
RPS_API const char *rps_npu_error(void);

/**
 * Wait until every stream of the device has nothing to do.
 *
 * Threads: any.
 * Errors:  of the first stream that failed.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_synchronize(rps_npu *npu);

/* --- memory, as a driver gives it ---------------------------------------- */

/**
 * Memory straight from the device, 512-byte aligned, zeroed; slow, and what
 * the pool is built on.
 *
 * Threads: any.
 * Errors:  the usual; NOMEM tells capacity, taken and the largest free range.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_malloc(
        rps_npu *npu, uint64_t bytes, void **address_out);

/**
 * Waits until the device is idle. NULL is allowed; INVAL: not of malloc (the
 * pool's segments and blocks are not).
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API rps_status rps_npu_free(rps_npu *npu, void *address);

/**
 * How much memory is free, and how much there is.
 *
 * Units:   bytes. Of the driver: what the pool reserved is not free.
 * Threads: any.
 */
RPS_API void rps_npu_memory(
        const rps_npu *npu, uint64_t *free_out, uint64_t *capacity_out);

/**
 * Is it an address in this device's memory?
 *
 * Threads: any.
 */
RPS_API bool rps_npu_is_device_address(const rps_npu *npu, const void *address);

/* --- streams ------------------------------------------------------------- */

/**
 * A stream: a thread that does what it is given, in order.
 *
 * Owns:    copies `name` (profiles show it; cut to RPS_NPU_NAME_BYTES - 1);
 *          *stream_out is released by rps_npu_stream_destroy().
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_stream_create(
        rps_npu *npu, const char *name, rps_npu_stream **stream_out);

/**
 * Waits for its work. NULL is allowed.
 *
 * Threads: one, and none uses it any more.
 */
RPS_API void rps_npu_stream_destroy(rps_npu_stream *stream);

/**
 * Whose stream it is.
 *
 * Threads: any.
 */
RPS_API rps_npu *rps_npu_stream_device(const rps_npu_stream *stream);

/**
 * Wait until it has nothing to do.
 *
 * Threads: one at a time a stream.
 * Errors:  of its work, once failed.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_stream_synchronize(
        rps_npu_stream *stream);

/**
 * *done_out: has it nothing to do?
 *
 * Threads: one at a time a stream.
 * Errors:  of its work, once failed.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_stream_query(
        rps_npu_stream *stream, bool *done_out);

/**
 * Wait, and forget a failure: the stream takes work again.
 *
 * Threads: one at a time a stream.
 */
RPS_API void rps_npu_stream_reset(rps_npu_stream *stream);

/** Which way a copy goes. */
enum rps_npu_copy {
    RPS_NPU_TO_DEVICE = 0, /**< host to device, over the link */
    RPS_NPU_TO_HOST = 1,   /**< device to host, over the link */
    RPS_NPU_ON_DEVICE = 2  /**< device to device */
};

/**
 * Copy on a stream.
 *
 * Owns:    borrows both sides until the copy is done. On the device a range
 *          lies in one allocation and does not overlap the other side's.
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_copy_async(rps_npu_stream *stream,
        void *to, const void *from, uint64_t bytes, enum rps_npu_copy way);

/**
 * Copy on a stream as many bytes as *bytes says when the stream comes to it,
 * at most bytes_max; 0: no copy. For compiled steps, whose other copies have
 * the size that they were captured with.
 *
 * Owns:    borrows both sides, for bytes_max, and `bytes`, host memory, until
 *          the copy is done; in a compiled step as long as the step.
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_copy_some_async(rps_npu_stream *stream,
        void *to, const void *from, const uint64_t *bytes, uint64_t bytes_max,
        enum rps_npu_copy way);

/**
 * The same, and wait for it.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual; of the stream's work.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_copy(rps_npu_stream *stream, void *to,
        const void *from, uint64_t bytes, enum rps_npu_copy way);

/**
 * Set bytes of device memory on a stream.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_fill_async(
        rps_npu_stream *stream, void *to, uint8_t value, uint64_t bytes);

/** What a stream calls on the host. Anything but OK fails the stream; its
 * words are rps_npu_host_failed()'s. */
typedef rps_status (*rps_npu_host_fn)(void *context);

/**
 * Call a host function when the stream comes to it: communication between two
 * parts of a step. It may wait, and use any library but this one's calls on
 * its own stream.
 *
 * Owns:    borrows context until then (in a compiled step: as long as the
 *          step). Copies name.
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_call_async(rps_npu_stream *stream,
        const char *name, rps_npu_host_fn function, void *context);

/**
 * In a host function: why it fails. Returns `status`.
 *
 * Threads: the stream's, in a host function.
 * Errors:  those it is given.
 */
RPS_API rps_status rps_npu_host_failed(rps_status status, const char *words);

/**
 * In a host function of a compiled step: this is the loop's last iteration;
 * what follows in the step is still done.
 *
 * Threads: the stream's, in a host function.
 */
RPS_API void rps_npu_host_end_loop(void);

/* --- events -------------------------------------------------------------- */

/**
 * A mark in a stream; done from the start, until it is recorded.
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_event_create(
        rps_npu *npu, rps_npu_event **event_out);

/**
 * Recorded ones may be destroyed: who waits goes on waiting. NULL is allowed.
 *
 * Threads: one, and none uses it any more.
 */
RPS_API void rps_npu_event_destroy(rps_npu_event *event);

/**
 * Put the mark behind all that the stream has to do. An event that is recorded
 * again forgets its former mark. In a capture it is a mark of the step, for
 * the step's streams; outside it is none.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_event_record(
        rps_npu_event *event, rps_npu_stream *stream);

/**
 * Is its mark reached?
 *
 * Threads: any.
 */
RPS_API bool rps_npu_event_query(const rps_npu_event *event);

/**
 * The host waits for the mark.
 *
 * Threads: any.
 */
RPS_API void rps_npu_event_synchronize(const rps_npu_event *event);

/**
 * What the stream gets from now on waits for the mark.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_stream_wait(
        rps_npu_stream *stream, rps_npu_event *event);

/**
 * The time between two marks that are done.
 *
 * Units:   ns.
 * Threads: any.
 * Errors:  INVAL (one is not done, or the second is before the first).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_event_elapsed(
        const rps_npu_event *from, const rps_npu_event *to, uint64_t *ns_out);

/* --- the caching pool ---------------------------------------------------- */

/**
 * Memory for work on `stream`, from the device's pool: a block of it, 512-byte
 * aligned, contents unspecified. Blocks are cut from segments that the pool
 * keeps when they are free: 2 MiB ones for requests up to 1 MiB, 20 MiB ones
 * for those up to 10 MiB, their own size (in 2 MiB) beyond.
 *
 * Threads: one at a time a stream; not in a host function, since it may wait
 *          for the device.
 * Errors:  the usual; INVAL (0 bytes). Before NOMEM, free segments go back to
 *          the driver and the request is tried again, with a segment no larger
 *          than it needs if there is no more, then once more when
 *          other streams are done with what was freed; its words have the
 *          pool's statistics.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_pool_alloc(
        rps_npu_stream *stream, uint64_t bytes, void **address_out);

/**
 * Give it back: later work of its stream may have it at once or, where other
 * streams were recorded (below), when their work until now is done. NULL is
 * allowed.
 *
 * Threads: any.
 * Errors:  INVAL (no block that is in use begins there, or it is a tensor's,
 *          whose release gives it back).
 */
RPS_API rps_status rps_npu_pool_free(rps_npu *npu, void *address);

/**
 * This block is used on another stream, too. Operators, and copies of tensors,
 * say so themselves.
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_pool_record_stream(
        void *address, rps_npu_stream *stream);

/**
 * Segments with nothing in use go back to the driver. Returns their bytes.
 *
 * Threads: any, but not in a host function.
 */
RPS_API uint64_t rps_npu_pool_trim(rps_npu *npu);

/** A figure over time. */
typedef struct rps_npu_figure {
    uint64_t now;
    uint64_t peak;  /**< since the last rps_npu_pool_reset_peaks() */
    uint64_t total; /**< all that was ever added */
} rps_npu_figure;

/** Units: bytes, or what the name says. */
typedef struct rps_npu_pool_stats {
    rps_npu_figure requested; /**< of live blocks, as asked for */
    rps_npu_figure allocated; /**< live blocks */
    rps_npu_figure active;    /**< allocated, and freed but still in use by
                               *   another stream */
    rps_npu_figure reserved;  /**< segments */
    rps_npu_figure blocks;    /**< live blocks, their number */
    rps_npu_figure segments;  /**< their number */
    uint64_t held;         /**< free blocks of compiled steps, theirs alone */
    uint64_t largest_free; /**< block that any request may have */
    uint64_t requests;
    uint64_t reused;        /**< of them, without a new segment */
    uint64_t trimmed;       /**< segments given back, their number */
    uint64_t out_of_memory; /**< requests that failed */
    /** 1 - largest_free / (reserved - active - held); 0 where nothing is
     * free. */
    double fragmentation;
} rps_npu_pool_stats;

/**
 * The statistics of now.
 *
 * Threads: any.
 */
RPS_API void rps_npu_pool_read_stats(rps_npu *npu, rps_npu_pool_stats *stats);

/**
 * Peaks begin anew, at what is now.
 *
 * Threads: any.
 */
RPS_API void rps_npu_pool_reset_peaks(rps_npu *npu);

enum rps_npu_format {
    RPS_NPU_TABLE = 0, /**< for people */
    RPS_NPU_JSON = 1
};

/**
 * The statistics as text; free() it. NULL: no memory.
 *
 * Threads: any.
 */
RPS_API char *rps_npu_pool_report(rps_npu *npu, enum rps_npu_format format);

/**
 * Every segment and block (address, bytes, state, stream), JSON; free() it.
 * `recps npu memory FILE` draws it. NULL: no memory.
 *
 * Threads: any.
 */
RPS_API char *rps_npu_pool_snapshot(rps_npu *npu);

/* --- compiled steps, iteration offload ----------------------------------- */

/**
 * What is given to `stream` from now on is not done but noted, until _end. A
 * stream that waits for an event that was recorded in the capture is part of
 * it, and must be waited for by `stream` before _end. Memory from the pool
 * meanwhile is the step's: it returns with the step. Streams of the capture
 * outlive the step's launches.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual; INVAL (it captures already).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_capture_begin(rps_npu_stream *stream);

/**
 * Owns:    *step_out is released by rps_npu_step_destroy().
 * Threads: one at a time a stream.
 * Errors:  the usual; of what could not be captured (a synchronize), INVAL.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_capture_end(
        rps_npu_stream *stream, rps_npu_step **step_out);

/**
 * Waits until no launch of it runs. NULL is allowed.
 *
 * Threads: one, and none uses it any more.
 */
RPS_API void rps_npu_step_destroy(rps_npu_step *step);

/** What one iteration has. */
typedef struct rps_npu_step_info {
    uint32_t operations; /**< kernels */
    uint32_t copies;
    uint32_t calls;        /**< host functions */
    uint64_t memory_bytes; /**< of the pool, held by the step */
    uint64_t workspace_bytes;
} rps_npu_step_info;

/**
 * What one iteration of the step has.
 *
 * Threads: any.
 */
RPS_API void rps_npu_step_describe(
        const rps_npu_step *step, rps_npu_step_info *info);

/**
 * One host call: `count` iterations of the step, on the device. It ends early
 * where a queue has no more data (before the iteration that would have needed
 * it) or a host function says so.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual; INVAL: count is 0, or more than a queue of the step has
 *          left (rps_npu_queue_expect): both numbers are in the words.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_launch(
        rps_npu_stream *stream, rps_npu_step *step, uint64_t count);

/**
 * `steps` iterations in launches of the loop size, the last one shorter; waits
 * for each. *done_out (may be NULL): iterations that were whole.
 *
 * Threads: one at a time a stream.
 * Errors:  those of launch, of the stream's work.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_run(rps_npu_stream *stream,
        rps_npu_step *step, uint64_t steps, uint64_t *done_out);

/**
 * The process's loop size, iterations a launch: what NPU_LOOP_SIZE said when
 * it was first asked for, else 1. May change between launches.
 *
 * Threads: any.
 * Errors:  INVAL: 0, or above RPS_NPU_LOOP_SIZE_MAX.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_set_loop_size(uint64_t size);

/**
 * The loop size now.
 *
 * Threads: any.
 * Errors:  INVAL (NPU_LOOP_SIZE is no such number; *size_out is 1).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_loop_size(uint64_t *size_out);

/** Counters of a device since it was opened. */
typedef struct rps_npu_counters {
    uint64_t launches;   /**< host calls that started device work: operations,
                          *   copies, compiled steps; not a queue's sets */
    uint64_t steps;      /**< iterations of compiled steps that were done */
    uint64_t captures;   /**< steps compiled */
    uint64_t operations; /**< kernels done */
    uint64_t copies_to_device;
    uint64_t copies_to_host;
    uint64_t copies_on_device;
    uint64_t bytes_to_device;
    uint64_t bytes_to_host;
    uint64_t queue_copies;    /**< sets that input threads copied */
    uint64_t queue_depth_max; /**< sets that lay ready at once, at most */
    uint64_t busy_ns;         /**< some stream had a kernel or a copy */
} rps_npu_counters;

/**
 * The counters of now.
 *
 * Threads: any.
 */
RPS_API void rps_npu_read_counters(
        const rps_npu *npu, rps_npu_counters *counters);

/* --- input queues -------------------------------------------------------- */

/**
 * A queue of at most `depth` sets, each of `parts` pieces of device memory:
 * filled by an input thread, taken by a step.
 *
 * Shapes:  bytes[parts], each > 0.
 * Owns:    *queue_out is released by rps_npu_queue_destroy().
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_queue_create(rps_npu *npu,
        const char *name, uint32_t depth, const uint64_t *bytes, uint32_t parts,
        rps_npu_queue **queue_out);

/**
 * No step that takes from it may run any more. NULL is allowed.
 *
 * Threads: one, and none uses it any more.
 */
RPS_API void rps_npu_queue_destroy(rps_npu_queue *queue);

/**
 * How many sets will come from now on: launches beyond it are refused.
 *
 * Threads: any.
 */
RPS_API void rps_npu_queue_expect(rps_npu_queue *queue, uint64_t sets);

/**
 * One asynchronous copy of a set, in the order of the calls, on the queue's
 * own stream; waits while the queue is full.
 *
 * Shapes:  from[parts], of the bytes given at creation.
 * Owns:    what `from` points to is free again on return.
 * Threads: one, the input thread.
 * Errors:  the usual; RPS_E_CANCELED (rps_npu_queue_cancel()).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_queue_put(
        rps_npu_queue *queue, const void *const *from);

/**
 * No more sets come: the end of the data.
 *
 * Threads: one, the input thread.
 */
RPS_API void rps_npu_queue_end(rps_npu_queue *queue);

/**
 * Sets that nobody took are dropped; a put that waits returns CANCELED, a step
 * that waits ends its loop.
 *
 * Threads: any.
 */
RPS_API void rps_npu_queue_cancel(rps_npu_queue *queue);

/**
 * After end or cancel, with nothing running: it takes sets again.
 *
 * Threads: one, and none uses the queue meanwhile.
 */
RPS_API void rps_npu_queue_restart(rps_npu_queue *queue);

/**
 * Take the next set on a stream: waits for it there, copies its pieces (on the
 * device) and frees its place. In a compiled step this begins an iteration.
 *
 * Shapes:  to[parts], device memory.
 * Threads: one at a time a stream.
 * Errors:  the usual; INVAL: no set is left (rps_npu_queue_expect). Outside of
 *          steps, a stream that comes to it and finds that no set will come
 *          fails with RPS_E_NOT_FOUND.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_queue_take(
        rps_npu_stream *stream, rps_npu_queue *queue, void *const *to);

#ifdef __cplusplus
}
#endif

#endif /* RPS_NPU_H */
