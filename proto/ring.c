/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* What lies at the memory's start. */
struct control {
    struct rps_ring_words server;
    struct rps_ring_words client;
};

_Static_assert(sizeof(struct control) <= RPS_RING_CONTROL_BYTES, "one page");
_Static_assert(offsetof(struct rps_ring_words, head) == 128 &&
                       offsetof(struct rps_ring_words, sleeps) == 256 &&
                       sizeof(struct rps_ring_words) == 384,
        "as proto/PROTOCOL.md has it");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
        "a lock would not be shared");

static uint64_t
align_up(uint64_t n)
{
    return (n + RPS_RING_ALIGN - 1) & ~(uint64_t)(RPS_RING_ALIGN - 1);
}

uint64_t
rps_ring_file_bytes(uint64_t ring_bytes)
{
    return RPS_RING_CONTROL_BYTES + 2 * ring_bytes;
}

uint64_t
rps_ring_round(uint64_t bytes)
{
    uint64_t size = RPS_RING_BYTES_MIN;

    while (size < bytes && size < RPS_RING_BYTES_MAX) {
        size *= 2;
    }
    return size;
}

/* Bytes [offset, offset + bytes) of the file, twice in a row at `at`. */
static bool
map_twice(uint8_t *at, int fd, uint64_t offset, uint64_t bytes)
{
    for (int i = 0; i < 2; i++, at += bytes) {
        if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                    (off_t)offset) == MAP_FAILED) {
            return false;
        }
    }
    return true;
}

static bool
map_all(struct rps_ring *ring, int fd)
{
    const uint64_t first = RPS_RING_CONTROL_BYTES;
    uint8_t *base;

    ring->map_bytes = RPS_RING_CONTROL_BYTES + 4 * ring->bytes;
    ring->map = mmap(NULL, ring->map_bytes, PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ring->map == MAP_FAILED) {
        ring->map = NULL;
        return false;
    }
    base = ring->map;
    ring->in = base + first;
    ring->out = ring->in + 2 * ring->bytes;
    return mmap(base, first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   0) != MAP_FAILED &&
           map_twice(ring->in, fd, first, ring->bytes) &&
           map_twice(ring->out, fd, first + ring->bytes, ring->bytes);
}

rps_status
rps_ring_map(struct rps_ring *ring, int fd, uint64_t ring_bytes,
        enum rps_ring_side side, struct rps_error *error)
{
    struct control *control;
    uint8_t *to_server;

    *ring = (struct rps_ring){.bytes = ring_bytes};
    if (ring_bytes < RPS_RING_BYTES_MIN || ring_bytes > RPS_RING_BYTES_MAX ||
            (ring_bytes & (ring_bytes - 1)) != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "a ring of %llu bytes: a power of two from %u to %u is legal",
                (unsigned long long)ring_bytes, RPS_RING_BYTES_MIN,
                RPS_RING_BYTES_MAX);
    }
    if (!map_all(ring, fd)) {
        (void)rps_fail(error, RPS_E_IO, "cannot map a ring of %llu bytes: %s",
                (unsigned long long)ring_bytes, strerror(errno));
        rps_ring_unmap(ring);
        return RPS_E_IO;
    }
    control = ring->map;
    ring->own = &control->server;
    ring->other = &control->client;
    if (side == RPS_RING_CLIENT) {
        to_server = ring->in;
        ring->in = ring->out;
        ring->out = to_server;
        ring->own = &control->client;
        ring->other = &control->server;
    }
    return RPS_OK;
}

void
rps_ring_unmap(struct rps_ring *ring)
{
    if (ring->map != NULL) {
        (void)munmap(ring->map, ring->map_bytes);
    }
    *ring = (struct rps_ring){0};
}

static rps_status
check(const struct rps_ring *ring, uint64_t n, struct rps_error *error)
{
    if (n > ring->bytes || n % RPS_RING_ALIGN != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "a position in the shared ring that cannot be: %llu bytes "
                "ahead, at most %llu",
                (unsigned long long)n, (unsigned long long)ring->bytes);
    }
    return RPS_OK;
}

rps_status
rps_ring_has(
        const struct rps_ring *ring, size_t *bytes_out, struct rps_error *error)
{
    /* acquire: what is below the tail was written before it */
    const uint64_t tail =
            atomic_load_explicit(&ring->other->tail, memory_order_acquire);
    const uint64_t n = tail - ring->taken;
    const rps_status status = check(ring, n, error);

    *bytes_out = status == RPS_OK ? (size_t)n : 0;
    return status;
}

const uint8_t *
rps_ring_front(const struct rps_ring *ring)
{
    return ring->in + (ring->taken & (ring->bytes - 1));
}

void
rps_ring_take(struct rps_ring *ring, void *into, size_t n)
{
    if (into != NULL) {
        memcpy(into, rps_ring_front(ring), n);
        /* the compiler may not read the ring again instead of the copy */
        atomic_signal_fence(memory_order_seq_cst);
    }
    ring->taken += n;
}

void
rps_ring_release(struct rps_ring *ring)
{
    ring->taken = align_up(ring->taken);
    /* a writer that sleeps for room must see it: see the header */
    atomic_store(&ring->own->head, ring->taken);
}

rps_status
rps_ring_room(
        const struct rps_ring *ring, size_t *bytes_out, struct rps_error *error)
{
    /* acquire: what lies there was read before it was given back */
    const uint64_t head =
            atomic_load_explicit(&ring->other->head, memory_order_acquire);
    const uint64_t used = ring->written - head;
    const rps_status status = check(ring, used, error);

    *bytes_out = status == RPS_OK ? (size_t)(ring->bytes - used) : 0;
    return status;
}

uint8_t *
rps_ring_back(const struct rps_ring *ring)
{
    return ring->out + (ring->written & (ring->bytes - 1));
}

void
rps_ring_publish(struct rps_ring *ring, size_t n)
{
    ring->written += align_up(n);
    /* a reader that sleeps for data must see it: see the header */
    atomic_store(&ring->own->tail, ring->written);
}

void
rps_ring_sleep(struct rps_ring *ring, uint32_t reasons)
{
    atomic_store(&ring->own->sleeps, reasons);
}

bool
rps_ring_wakes(struct rps_ring *ring, uint32_t reason)
{
    return (atomic_load(&ring->other->sleeps) & reason) != 0 &&
           (atomic_exchange(&ring->other->sleeps, 0) & reason) != 0;
}

static void
pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool
rps_ring_spin(const struct rps_ring *ring, uint32_t rounds)
{
    const uint64_t start = ring->taken;

    for (uint32_t i = 0; i < rounds; i++) {
        /* relaxed: rps_ring_has() looks again before anything is read */
        if (atomic_load_explicit(&ring->other->tail, memory_order_relaxed) !=
                start) {
            return true;
        }
        pause_a_little();
    }
    return false;
}
