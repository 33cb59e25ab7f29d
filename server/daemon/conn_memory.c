/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how much memory the connections of a loop may take. Each loop has its
 * share of --buffers-max, so that no loop waits for another:
 *
 *   held = sum over its connections of: buffer of the frame that comes in,
 *          replies that are not taken yet, frames of a push that is not whole
 *
 *   a frame of any size is begun while    held < max
 *   a buffer grows beyond SMALL_BYTES     while held <= 3/4 max
 *   and then on                           while held <= max
 *   who has replies to take takes them first, from held = 1/2 max on
 *
 * Who may not, waits in a queue and is not read from: the first in the queue
 * goes first. Where everybody waits for what others hold, one of them, the
 * elder, goes on beyond the bound for one frame and until its reply is taken:
 *
 *   held <= max + what the elder needs + one reply
 *
 * While memory is short, a connection that holds some is closed when nothing
 * of it moves for STILL_MS, or fewer than STALL_BYTES do in STALL_MS, unless
 * it is we who do not read from it. A client that was only busy comes again.
 */
#include "base/clock.h"
#include "server/daemon/conn_impl.h"
#include "server/service.h"

#include <assert.h>
#include <stdlib.h>

#define SMALL_BYTES  (64u << 10)
#define STALL_BYTES  (64u << 10)
#define STALL_MS     5000u
#define STILL_MS     1000u
#define REPORT_BYTES (1u << 20) /* to memory_limit, in steps of this */

static struct rps_loop_memory *
memory_of(const struct rps_conn *conn)
{
    return rps_loop_memory(conn->loop);
}

/* What others see of it. */
static void
publish(struct rps_loop *loop)
{
    struct rps_loop_memory *memory = rps_loop_memory(loop);
    struct rps_loop_stats *stats = rps_loop_stats(loop);
    const int64_t change = (int64_t)(memory->held - memory->reported);

    rps_stat_set(&stats->held_bytes, memory->held);
    rps_stat_set(&stats->waiting, memory->waiting);
    if (change >= (int64_t)REPORT_BYTES || -change >= (int64_t)REPORT_BYTES ||
            (memory->held == 0 && change != 0)) {
        rps_service_count_buffers(rps_loop_shared(loop)->service, change);
        memory->reported = memory->held;
    }
}

static void
begin_watch(struct rps_conn *conn)
{
    conn->moved_bytes = 0;
    conn->moved_ns = rps_clock_ns();
    conn->still = false;
}

/* --- the queue ----------------------------------------------------------- */

static void
enqueue(struct rps_conn *conn, size_t bytes)
{
    struct rps_loop_memory *memory = memory_of(conn);

    assert(!conn->waits);
    conn->waits = true;
    conn->wants = bytes;
    conn->waits_behind = memory->last;
    conn->waits_before = NULL;
    if (memory->last != NULL) {
        memory->last->waits_before = conn;
    } else {
        memory->first = conn;
    }
    memory->last = conn;
    memory->waiting++;
}

static void
dequeue(struct rps_conn *conn)
{
    struct rps_loop_memory *memory = memory_of(conn);

    if (!conn->waits) {
        return;
    }
    conn->waits = false;
    if (conn->waits_behind != NULL) {
        conn->waits_behind->waits_before = conn->waits_before;
    } else {
        memory->first = conn->waits_before;
    }
    if (conn->waits_before != NULL) {
        conn->waits_before->waits_behind = conn->waits_behind;
    } else {
        memory->last = conn->waits_behind;
    }
    memory->waiting--;
    begin_watch(conn); /* it has nothing to take, see rps_conn_may_begin() */
}

static bool
fits(const struct rps_loop_memory *memory, size_t bytes)
{
    return bytes == 0 ? memory->held < memory->max
                      : memory->held + bytes <= memory->max / 4 * 3;
}

/* The first in the queue go on, as far as there is room. */
static void
wake(struct rps_loop *loop)
{
    struct rps_loop_memory *memory = rps_loop_memory(loop);

    while (memory->first != NULL) {
        struct rps_conn *conn = memory->first;
        const bool room = fits(memory, conn->wants);

        if (!room && memory->elder != NULL) {
            break;
        }
        if (!room) {
            memory->elder = conn;
            conn->elder_served = false;
        }
        dequeue(conn);
        conn->promised = conn->wants;
        conn->held += conn->wants;
        memory->held += conn->wants;
        conn->passes = true;
        event_active(&conn->readable, EV_READ, 1);
    }
    publish(loop);
}

/* --- what a connection holds --------------------------------------------- */

bool
rps_conn_may_keep(const struct rps_conn *conn)
{
    const struct rps_loop_memory *memory = memory_of(conn);

    return conn->in_capacity <= RPS_CONN_KEEP_BYTES ||
           (conn->in_capacity <= RPS_CONN_KEEP_LARGE &&
                   memory->held <= memory->max / 4);
}

void
rps_conn_drop_buffer(struct rps_conn *conn)
{
    free(conn->in);
    conn->in = NULL;
    rps_conn_release(conn, conn->in_capacity);
    conn->in_capacity = 0;
}

static void
drop_idle_buffer(struct rps_conn *conn)
{
    if (conn->in_length == 0 && conn->frame_bytes == 0 && conn->in != NULL &&
            !conn->handling) {
        rps_conn_drop_buffer(conn);
    }
}

bool
rps_conn_reserve(struct rps_conn *conn, size_t bytes)
{
    struct rps_loop_memory *memory = memory_of(conn);

    if (conn->promised > 0) { /* what it waited for; it is in `held` */
        const size_t used = bytes < conn->promised ? bytes : conn->promised;

        conn->promised -= used;
        rps_conn_hold(conn, bytes - used);
        return true;
    }
    if (conn->in_capacity + bytes > SMALL_BYTES && memory->elder != conn) {
        const bool goes_on =
                conn->passes && memory->held + bytes <= memory->max;

        if (!goes_on && (memory->first != NULL || !fits(memory, bytes))) {
            enqueue(conn, bytes);
            wake(conn->loop);
            return false;
        }
        conn->passes = true; /* a frame waits once, if it can be */
    }
    rps_conn_hold(conn, bytes);
    return true;
}

bool
rps_conn_may_begin(struct rps_conn *conn)
{
    struct rps_loop_memory *memory = memory_of(conn);

    if (conn->state != RPS_CONN_SERVING) {
        return true; /* who is new has bounds of its own, and may say HELLO */
    }
    if (conn->out_bytes > 0 && memory->held >= memory->max / 2) {
        conn->clogged = true;
        return false;
    }
    if (conn->passes || (memory->held < memory->max && memory->first == NULL) ||
            (memory->elder == conn && !conn->elder_served)) {
        return true;
    }
    enqueue(conn, 0);
    wake(conn->loop);
    return false;
}

void
rps_conn_hold(struct rps_conn *conn, size_t bytes)
{
    if (conn->held == 0) {
        begin_watch(conn);
    }
    conn->held += bytes;
    memory_of(conn)->held += bytes;
    publish(conn->loop);
}

void
rps_conn_release(struct rps_conn *conn, size_t bytes)
{
    struct rps_loop_memory *memory = memory_of(conn);

    assert(conn->held >= bytes && memory->held >= bytes);
    conn->held -= bytes;
    memory->held -= bytes;
    publish(conn->loop);
}

void
rps_conn_moved(struct rps_conn *conn, size_t bytes)
{
    conn->moved_bytes += bytes;
    conn->still = false;
    if (conn->moved_bytes >= STALL_BYTES) {
        begin_watch(conn);
    }
}

void
rps_conn_end_frame(struct rps_conn *conn)
{
    struct rps_loop_memory *memory = memory_of(conn);

    rps_conn_release(conn, conn->promised);
    conn->promised = 0;
    conn->passes = false;
    conn->elder_served |=
            memory->elder == conn && rps_session_held_bytes(conn->session) == 0;
    begin_watch(conn);
}

void
rps_conn_settle_memory(struct rps_conn *conn)
{
    struct rps_loop_memory *memory = memory_of(conn);
    const size_t stored = rps_session_held_bytes(conn->session);

    conn->clogged = conn->clogged && conn->out_bytes > 0;
    if (stored > conn->stored) {
        rps_conn_hold(conn, stored - conn->stored);
    } else if (stored < conn->stored) {
        rps_conn_release(conn, conn->stored - stored);
    }
    conn->stored = stored;
    if (memory->elder == conn && conn->elder_served && conn->out_bytes == 0) {
        memory->elder = NULL;
    }
    if (memory->first != NULL) {
        wake(conn->loop);
    }
}

void
rps_conn_finish_memory(struct rps_conn *conn)
{
    struct rps_loop_memory *memory = memory_of(conn);

    dequeue(conn);
    rps_conn_release(conn, conn->held);
    if (memory->elder == conn) {
        memory->elder = NULL;
    }
    if (memory->first != NULL) {
        wake(conn->loop);
    }
}

/* --- who holds it for nothing -------------------------------------------- */

/* It has something begun: half a frame or push, replies that nobody takes. */
static bool
is_stalled(struct rps_conn *conn, uint64_t now_ns)
{
    const bool begun = conn->in_length > 0 || conn->out_bytes > 0 ||
                       conn->stored > 0 || conn->promised > 0;
    const bool was_still = conn->still;

    const bool first = memory_of(conn)->elder == conn || conn->promised > 0;

    if (!begun || conn->waits || (conn->held <= SMALL_BYTES / 4 && !first)) {
        return false;
    }
    if (!was_still) {
        conn->still = true; /* until something moves */
        conn->still_ns = now_ns;
    }
    return now_ns - conn->moved_ns > (uint64_t)STALL_MS * 1000000u ||
           (was_still &&
                   now_ns - conn->still_ns > (uint64_t)STILL_MS * 1000000u);
}

void
rps_conn_look_at_memory(struct rps_conn *conn)
{
    drop_idle_buffer(conn);
    if (is_stalled(conn, rps_clock_ns())) {
        rps_conn_lose(conn, "stalled",
                "it holds memory that others wait for (--buffers-max) and "
                "moves too little");
        rps_conn_destroy(conn);
    }
}

bool
rps_loop_is_short(struct rps_loop *loop)
{
    const struct rps_loop_memory *memory = rps_loop_memory(loop);

    return memory->first != NULL || memory->held >= memory->max / 2;
}
