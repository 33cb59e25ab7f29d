/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one loop counts about its requests. Each loop has its own, so that the
 * way of a request meets no other thread:
 *
 *   one writer, the loop's thread: a load, an addition, a store, no lock prefix
 *   any reader (the admin thread): sums over the loops when it is asked
 *
 * All are relaxed atomics: each number is true by itself, none says anything
 * about another, and a reader that sees it a moment late shows it a moment
 * late.
 */
#ifndef RPS_SERVER_DAEMON_LOOP_STATS_H
#define RPS_SERVER_DAEMON_LOOP_STATS_H

#include "proto/frame.h"

#include <recps/status.h>

#include <stdatomic.h>
#include <stdint.h>

#define RPS_OPS_COUNTED   (RPS_OP_LAST + 1)     /* 0: opcodes we do not know */
#define RPS_CODES_COUNTED (1 - RPS_STATUS_LAST) /* by -status */

/*
 * Times: bucket 0 has all below 1024 ns, then four buckets an octave (a bound
 * is off by a quarter at most), the last has all from 68.7 s on.
 *
 *   bucket 1 + 4 o + s  =  [(4 + s), (5 + s)) * 2^(8 + o) ns,  o < 26, s < 4
 */
#define RPS_TIME_OCTAVES 26u
#define RPS_TIME_BUCKETS (2u + 4u * RPS_TIME_OCTAVES)

/* Sizes: bucket i has those of at most 4^i, the last all above 4^10. */
#define RPS_SIZE_BUCKETS 12u

struct rps_time_histogram {
    _Atomic uint64_t buckets[RPS_TIME_BUCKETS];
    _Atomic uint64_t ns; /* their sum */
};

struct rps_size_histogram {
    _Atomic uint64_t buckets[RPS_SIZE_BUCKETS];
    _Atomic uint64_t sum;
};

/** Why a peer lost its connection, or got none. */
enum rps_refused {
    RPS_REFUSED_LIMIT,      /* above connections_max */
    RPS_REFUSED_BAD_FRAME,  /* bytes that are no frame */
    RPS_REFUSED_NO_HELLO,   /* within 5 s */
    RPS_REFUSED_HANDSHAKES, /* the oldest of too many without HELLO */
    RPS_REFUSED_TLS,        /* its handshake, its records, or none at all */
    RPS_REFUSED_MEMORY,
    RPS_REFUSED_STALLED, /* held memory that others waited for */
    RPS_REFUSED_COUNT
};

struct rps_loop_stats {
    _Alignas(64) _Atomic uint64_t received_bytes;
    _Atomic uint64_t sent_bytes;
    _Atomic uint64_t accepted; /* connections */
    _Atomic uint64_t refused[RPS_REFUSED_COUNT];
    _Atomic uint64_t pending;      /* requests without an answer, now */
    _Atomic uint64_t parked;       /* of them, those that wait for others */
    _Atomic uint64_t unsent_bytes; /* of replies, now */
    _Atomic uint64_t held_bytes;   /* of buffers, now */
    _Atomic uint64_t waiting;      /* connections that wait for memory, now */
    _Atomic uint64_t tick_ns;      /* when the loop last turned its clock */
    _Atomic uint64_t lag_ns;       /* how late that was */

    _Atomic uint64_t replies[RPS_OPS_COUNTED][RPS_CODES_COUNTED];
    struct rps_time_histogram times[RPS_OPS_COUNTED];
    struct rps_size_histogram keys[RPS_OPS_COUNTED];
};

/** The loop's thread only; n may be "negative": it wraps. */
static inline void
rps_stat_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter,
            atomic_load_explicit(counter, memory_order_relaxed) + n,
            memory_order_relaxed);
}

static inline void
rps_stat_set(_Atomic uint64_t *gauge, uint64_t value)
{
    atomic_store_explicit(gauge, value, memory_order_relaxed);
}

static inline uint64_t
rps_stat_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/** Zeroed, on lines of its own; NULL: no memory. free(). */
struct rps_loop_stats *rps_loop_stats_create(void);

uint32_t rps_time_bucket(uint64_t ns);
uint32_t rps_size_bucket(uint64_t n);

/** A reply was made: what it answers, how, and how long that took. */
void rps_loop_stats_reply(struct rps_loop_stats *stats, uint16_t opcode,
        int32_t status, uint64_t ns);

/** A request asks for so many keys. */
void rps_loop_stats_keys(
        struct rps_loop_stats *stats, uint16_t opcode, uint64_t n);

#endif /* RPS_SERVER_DAEMON_LOOP_STATS_H */
