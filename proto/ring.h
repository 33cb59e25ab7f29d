/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames through memory that a client and a server share. The server makes
 * it, sealed so that it neither shrinks nor grows:
 *
 *        0  control: positions and flags of each side, see the struct below
 *    65536  the ring to the server, N bytes
 *  65536+N  the ring to the client, N bytes        N: a power of two
 *
 * Each ring is mapped twice, one behind the other, so that any N bytes of it
 * lie in a row. A position counts bytes since the start and is masked only
 * where it becomes an address; a frame begins at a multiple of 64 bytes:
 *
 *   tail - head <= N,  tail and head multiples of 64
 *
 * The other side may write anything anywhere at any time. So a side keeps its
 * own positions privately and only publishes them, and believes the other's
 * no further than the equation above: CORRUPT, and the connection is over.
 *
 * Sleep and wake. Before a side sleeps it says for what (rps_ring_sleep) and
 * looks once more; whoever publishes asks after that whether the other sleeps
 * (rps_ring_wakes) and rings its bell if so. Both orders are seq_cst, so one
 * of the two sees the other.
 *
 * Threads: one thread a side.
 */
#ifndef RPS_PROTO_RING_H
#define RPS_PROTO_RING_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_RING_CONTROL_BYTES 65536u /* a page, on any machine */
#define RPS_RING_BYTES_MIN     (64u << 10)
#define RPS_RING_BYTES_MAX     (1u << 30)
#define RPS_RING_ALIGN         64u

/** For what a side sleeps. */
#define RPS_RING_FOR_DATA 1u
#define RPS_RING_FOR_ROOM 2u

/** Descriptors that come with the answer to SHM_ATTACH: the memory, the
 * server's bell (eventfd), the client's bell (a pipe's reading end, whose end
 * is the server's). */
#define RPS_RING_FDS 3

enum rps_ring_side {
    RPS_RING_SERVER,
    RPS_RING_CLIENT
};

/** What a side writes and the other reads; on lines of its own. */
struct rps_ring_words {
    _Alignas(128) _Atomic uint64_t tail;   /* bytes that it has written */
    _Alignas(128) _Atomic uint64_t head;   /* bytes that it has taken */
    _Alignas(128) _Atomic uint32_t sleeps; /* RPS_RING_FOR_; both write it */
};

/** One side of it; private memory. */
struct rps_ring {
    struct rps_ring_words *own;   /* shared */
    struct rps_ring_words *other; /* shared */
    uint8_t *in;                  /* [2 * bytes], shared; what comes */
    uint8_t *out;                 /* [2 * bytes], shared; what goes */
    uint64_t bytes;               /* of one ring, a power of two */
    uint64_t taken;               /* our head in `in`, ahead of the published */
    uint64_t written;             /* our tail in `out`, published */
    void *map;
    size_t map_bytes;
};

/** Bytes of the whole memory with rings of so many bytes. */
uint64_t rps_ring_file_bytes(uint64_t ring_bytes);

/** A legal size of a ring that has at least so many bytes. */
uint64_t rps_ring_round(uint64_t bytes);

/**
 * Map the memory of a descriptor, which may be closed then. INVAL: not a size
 * of a ring; IO: it cannot be mapped.
 */
rps_status rps_ring_map(struct rps_ring *ring, int fd, uint64_t ring_bytes,
        enum rps_ring_side side, struct rps_error *error);

/** Zeroed is fine. */
void rps_ring_unmap(struct rps_ring *ring);

/* --- what comes --- */

/** Bytes that are there, a multiple of 64. Not between taking a frame's end and
 * releasing it. CORRUPT: the other side's position is rubbish. */
rps_status rps_ring_has(const struct rps_ring *ring, size_t *bytes_out,
        struct rps_error *error);

/** Where they begin; at most ring->bytes of them lie in a row. */
const uint8_t *rps_ring_front(const struct rps_ring *ring);

/** Pass over n of them; `into` (NULL: nowhere) gets a copy, and what is read
 * there later is what was copied, whatever happens to the ring. */
void rps_ring_take(struct rps_ring *ring, void *into, size_t n);

/** Pass over the rest of a frame's last 64 bytes, and give all that was taken
 * back to the writer. */
void rps_ring_release(struct rps_ring *ring);

/* --- what goes --- */

/** Bytes of room; CORRUPT as above. */
rps_status rps_ring_room(const struct rps_ring *ring, size_t *bytes_out,
        struct rps_error *error);

/** Where they begin. */
uint8_t *rps_ring_back(const struct rps_ring *ring);

/** n bytes there are written: let the other side have them, with what is
 * missing to a multiple of 64. Only a frame's last n may be no multiple. */
void rps_ring_publish(struct rps_ring *ring, size_t n);

/* --- sleep and wake --- */

/** Say that we are about to sleep; look once more before it is done. 0: awake
 * again. */
void rps_ring_sleep(struct rps_ring *ring, uint32_t reasons);

/** After publishing (DATA) or releasing (ROOM): does the other side sleep for
 * it? Then its bell is ours to ring, once. */
bool rps_ring_wakes(struct rps_ring *ring, uint32_t reason);

/** Look at the ring for so many rounds of a few nanoseconds: is there data? */
bool rps_ring_spin(const struct rps_ring *ring, uint32_t rounds);

#endif /* RPS_PROTO_RING_H */
