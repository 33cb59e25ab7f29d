/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caching pool, apart from the device under it: what rps_npu_pool_…
 * (npu.h) does, on a driver that may be any (tests have one of their own).
 *
 * A pool holds segments, which it took from the driver; a segment is cut into
 * blocks that lie side by side and fill it:
 *
 *   reserved = sum of segments = active + held + free
 *   active   = live blocks (allocated) + blocks that wait for other streams
 *   held     = free blocks of compiled steps, which only their step may use
 *
 * A segment belongs to one stream: a block that was freed may be given out
 * again while kernels that use it are still queued, because the next user's
 * kernels stand behind them in the same stream. Other streams that used the
 * block are recorded on it; each gets a mark when it is freed, and it waits
 * until the marks are passed.
 *
 * Threads: any, but rps_pool_finish(). A pool has one lock, under which it
 * calls the driver's take, mark and passed, and never give or wait. Whoever
 * holds a lock that those need must not call the pool.
 */
#ifndef RPS_NPU_POOL_H
#define RPS_NPU_POOL_H

#include "base/error.h"

#include <recps/npu.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RPS_POOL_ALIGN         UINT64_C(512)
#define RPS_POOL_SMALL_MAX     (UINT64_C(1) << 20)  /* a request's bytes */
#define RPS_POOL_SMALL_SEGMENT (UINT64_C(2) << 20)  /* bytes */
#define RPS_POOL_LARGE_MAX     (UINT64_C(10) << 20) /* beyond: its own size */
#define RPS_POOL_LARGE_SEGMENT (UINT64_C(20) << 20) /* bytes */
#define RPS_POOL_HUGE_ROUND    (UINT64_C(2) << 20)  /* bytes */
#define RPS_POOL_SMALL_ROUND   (UINT64_C(64) << 10) /* where memory is short */
#define RPS_POOL_SMALL_SHARE   8u /* of a device: its small segments at most */
#define RPS_POOL_PAGE          UINT64_C(4096) /* of any segment */

/** A use of a block that has no place in a capture, or one that is not known.
 */
#define RPS_POOL_NO_PLACE UINT64_MAX

struct rps_npu_pool;

/** The memory of one compiled step: segments apart from all others. What was
 * freed in its capture is used again by that capture alone. */
struct rps_pool_private;

/** What a pool stands on. `context` comes back with each call. */
struct rps_pool_driver {
    void *context;
    uint64_t capacity; /* bytes; 0: not known */
    /* Memory of whole segments. NOMEM is tried again after a trim; its words
     * become part of the pool's. */
    rps_status (*take)(void *context, uint64_t bytes, void **address_out,
            struct rps_error *error);
    /* May wait for the device. */
    void (*give)(void *context, void *address);
    /* A stream's name: until the next call. */
    const char *(*stream_name)(void *context, const rps_npu_stream *stream);
    /* A mark behind all that the stream has to do: a place in it. false: not
     * now, since it captures; it is asked again. */
    bool (*mark)(void *context, const rps_npu_stream *stream,
            uint64_t *position_out);
    bool (*passed)(
            void *context, const rps_npu_stream *stream, uint64_t position);
    /* `owner` captures, on this thread: is `stream` part of the same capture,
     * and will what `owner` is given next stand behind that place of it? */
    bool (*follows)(void *context, const rps_npu_stream *owner,
            const rps_npu_stream *stream, uint64_t place);
    /* May wait for more. */
    void (*wait)(void *context, rps_npu_stream *stream, uint64_t position);
};

/** NULL: no memory. Owns: copies *driver. */
struct rps_npu_pool *rps_pool_create(const struct rps_pool_driver *driver);

/** Everything goes back to the driver, also what is live. The streams have
 * nothing to do any more. NULL is allowed. Threads: the last one. */
void rps_pool_destroy(struct rps_npu_pool *pool);

/** A block for work on `stream`; of the step's memory where `private` is not
 * NULL. Errors: INVAL (0 bytes), NOMEM. */
RPS_NODISCARD rps_status rps_pool_alloc(struct rps_npu_pool *pool,
        rps_npu_stream *stream, struct rps_pool_private *private,
        uint64_t bytes, void **address_out, struct rps_error *error);

/** Errors: INVAL (no live block begins there, or it has an owner). */
rps_status rps_pool_free(struct rps_npu_pool *pool, const void *address,
        struct rps_error *error);

/** The live block that begins there is a tensor's, which alone gives it back.
 */
void rps_pool_own(struct rps_npu_pool *pool, const void *address);

/** rps_pool_free() of a block that rps_pool_own() has marked. */
void rps_pool_free_owned(struct rps_npu_pool *pool, const void *address);

/** How many of the bytes that a live block was asked for begin at `address`, in
 * it; 0: it is in none. */
uint64_t rps_pool_left(struct rps_npu_pool *pool, const void *address);

/** Another stream uses the block; where the block is a step's and the stream
 * captures it, at this place and at no later one, or one that is recorded, too.
 * Errors: INVAL (no live block begins there),
 * NOMEM. */
RPS_NODISCARD rps_status rps_pool_record_stream(struct rps_npu_pool *pool,
        const void *address, rps_npu_stream *stream, uint64_t place,
        struct rps_error *error);

/** Segments without a block in use go back to the driver. Returns their
 * bytes. */
uint64_t rps_pool_trim(struct rps_npu_pool *pool);

/** The stream has nothing to do and will be destroyed: what was its own may be
 * any stream's. */
void rps_pool_forget_stream(struct rps_npu_pool *pool, rps_npu_stream *stream);

/* --- compiled steps ------------------------------------------------------- */

/** When a capture begins. NULL: no memory. */
struct rps_pool_private *rps_pool_private_create(struct rps_npu_pool *pool);

/** Of the pool's, from 1: no two have the same. */
uint64_t rps_pool_private_number(const struct rps_pool_private *private);

/** The capture has ended: requests for the step end, too. */
void rps_pool_private_close(
        struct rps_npu_pool *pool, struct rps_pool_private *private);

/** No launch of the step runs or will: its memory is everyone's, but for what
 * is still live, which goes back when it is freed. NULL is allowed. */
void rps_pool_private_destroy(
        struct rps_npu_pool *pool, struct rps_pool_private *private);

/** Units: bytes of its segments. */
uint64_t rps_pool_private_bytes(
        struct rps_npu_pool *pool, const struct rps_pool_private *private);

/* --- what it has ---------------------------------------------------------- */

void rps_pool_read_stats(struct rps_npu_pool *pool, rps_npu_pool_stats *stats);
void rps_pool_reset_peaks(struct rps_npu_pool *pool);

/** Figures as text, of the device with this number; free(). NULL: no memory. */
char *rps_pool_report(const rps_npu_pool_stats *stats, uint32_t id,
        enum rps_npu_format format);

/** The same as an object; new reference. NULL: no memory. */
json_t *rps_pool_stats_json(const rps_npu_pool_stats *stats);

enum rps_pool_state {
    RPS_POOL_FREE = 0,
    RPS_POOL_LIVE,
    RPS_POOL_WAITING /* freed, other streams still use it */
};

/** One block, as a walk shows it. */
struct rps_pool_seen {
    uint64_t segment; /* its address */
    uint64_t segment_bytes;
    bool small;         /* of the pool of small requests */
    uint64_t step;      /* whose it is, counted from 1; 0: no step's */
    const char *stream; /* NULL: any stream's */
    uint64_t address;
    uint64_t bytes;
    uint64_t requested; /* 0 where it is free */
    enum rps_pool_state state;
};

/** Call `see` for every block, segments in the order of addresses, under the
 * pool's lock. false: no memory. */
bool rps_pool_walk(struct rps_npu_pool *pool,
        void (*see)(void *context, const struct rps_pool_seen *block),
        void *context);

/** Segments, blocks and statistics of one moment as JSON, of the device with
 * this number and capacity; free(). NULL: no memory. */
char *rps_pool_snapshot(
        struct rps_npu_pool *pool, uint32_t id, uint64_t capacity_bytes);

#endif /* RPS_NPU_POOL_H */
