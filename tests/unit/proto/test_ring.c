/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides of a ring in one process: what goes in comes out, in order, at
 * every position; positions that cannot be are refused; and whoever sleeps is
 * woken.
 */
#include "proto/ring.h"
#include "tests/unit/suite.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES  ((uint64_t)RPS_RING_BYTES_MIN)
#define FRAMES 20000u

static struct rps_ring server;
static struct rps_ring client;

static void
open_rings(void)
{
    struct rps_error error;
    int fd = memfd_create("test", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)rps_ring_file_bytes(BYTES)), 0);
    ck_assert_int_eq(
            rps_ring_map(&server, fd, BYTES, RPS_RING_SERVER, &error), RPS_OK);
    ck_assert_int_eq(
            rps_ring_map(&client, fd, BYTES, RPS_RING_CLIENT, &error), RPS_OK);
    (void)close(fd);
}

static void
close_rings(void)
{
    rps_ring_unmap(&server);
    rps_ring_unmap(&client);
    rps_ring_unmap(&client); /* again is fine */
}

static size_t
has(const struct rps_ring *ring)
{
    struct rps_error error;
    size_t n = 0;

    ck_assert_int_eq(rps_ring_has(ring, &n, &error), RPS_OK);
    return n;
}

static size_t
room(const struct rps_ring *ring)
{
    struct rps_error error;
    size_t n = 0;

    ck_assert_int_eq(rps_ring_room(ring, &n, &error), RPS_OK);
    return n;
}

START_TEST(both_directions_carry_bytes_and_meet_nowhere)
{
    open_rings();
    ck_assert_uint_eq(room(&client), BYTES);
    memset(rps_ring_back(&client), 'c', BYTES);
    memset(rps_ring_back(&server), 's', BYTES);
    rps_ring_publish(&client, BYTES);
    rps_ring_publish(&server, 100); /* counts as 128 */
    ck_assert_uint_eq(room(&client), 0);
    ck_assert_uint_eq(has(&server), BYTES);
    ck_assert_uint_eq(has(&client), 128);
    ck_assert_uint_eq(rps_ring_front(&server)[BYTES - 1], 'c');
    ck_assert_uint_eq(rps_ring_front(&client)[99], 's');
    rps_ring_take(&client, NULL, 100);
    rps_ring_release(&client);
    ck_assert_uint_eq(has(&client), 0);
    ck_assert_uint_eq(room(&server), BYTES);
    close_rings();
}
END_TEST

START_TEST(frames_lie_in_a_row_across_the_ends)
{
    uint8_t copy[RPS_RING_BYTES_MIN];

    open_rings();
    for (uint32_t i = 0; i < 300; i++) {
        const size_t n = 64 + i * 7919 % (RPS_RING_BYTES_MIN - 64);

        ck_assert_uint_ge(room(&client), n);
        memset(rps_ring_back(&client), (int)i, n);
        rps_ring_publish(&client, n);
        ck_assert_uint_eq(has(&server), (n + 63) / 64 * 64);
        rps_ring_take(&server, copy, n);
        rps_ring_release(&server);
        ck_assert_uint_eq(copy[0], (uint8_t)i);
        ck_assert_mem_eq(copy, copy + 1, n - 1); /* all of them */
    }
    close_rings();
}
END_TEST

START_TEST(positions_that_cannot_be_are_refused)
{
    const uint64_t wrong[] = {1, 63, BYTES + 64, UINT64_MAX, 1ull << 63};
    struct rps_error error;
    size_t n = 7;

    open_rings();
    atomic_store(&client.own->tail, wrong[_i]);
    ck_assert_int_eq(rps_ring_has(&server, &n, &error), RPS_E_CORRUPT);
    ck_assert_uint_eq(n, 0);
    atomic_store(&client.own->head, wrong[_i]);
    n = 7;
    ck_assert_int_eq(rps_ring_room(&server, &n, &error), RPS_E_CORRUPT);
    ck_assert_uint_eq(n, 0);
    ck_assert_ptr_nonnull(strstr(error.text, "cannot be"));
    close_rings();
}
END_TEST

START_TEST(sizes_are_powers_of_two_within_limits)
{
    struct rps_ring ring;
    struct rps_error error;

    ck_assert_uint_eq(rps_ring_round(0), RPS_RING_BYTES_MIN);
    ck_assert_uint_eq(rps_ring_round(65537), 131072);
    ck_assert_uint_eq(rps_ring_round(4u << 20), 4u << 20);
    ck_assert_uint_eq(rps_ring_round(UINT64_MAX), RPS_RING_BYTES_MAX);
    ck_assert_int_eq(rps_ring_map(&ring, -1, 100000, RPS_RING_CLIENT, &error),
            RPS_E_INVAL);
    ck_assert_int_eq(
            rps_ring_map(&ring, -1, 1ull << 40, RPS_RING_CLIENT, &error),
            RPS_E_INVAL);
    ck_assert_int_eq(
            rps_ring_map(&ring, -1, BYTES, RPS_RING_CLIENT, &error), RPS_E_IO);
    rps_ring_unmap(&ring);
}
END_TEST

/* --- two threads --- */

static int server_bell;
static int client_bell;

static void
wait_for(int bell)
{
    struct pollfd poll_fd = {.fd = bell, .events = POLLIN};
    uint64_t count;

    /* a wake that is lost would hang here: that is the test */
    ck_assert_int_eq(poll(&poll_fd, 1, 20000), 1);
    ck_assert_int_eq(read(bell, &count, sizeof(count)), sizeof(count));
}

static void
wake(struct rps_ring *ring, int bell, uint32_t reason)
{
    const uint64_t one = 1;

    if (rps_ring_wakes(ring, reason)) {
        ck_assert_int_eq(write(bell, &one, sizeof(one)), sizeof(one));
    }
}

static size_t
bytes_of(uint32_t i)
{
    return 64 + (uint64_t)i * 2654435761u % 9000;
}

static void *
produce(void *context)
{
    for (uint32_t i = 0; i < FRAMES; i++) {
        while (room(&client) < bytes_of(i)) {
            rps_ring_sleep(&client, RPS_RING_FOR_ROOM);
            if (room(&client) < bytes_of(i)) {
                wait_for(client_bell);
            }
            rps_ring_sleep(&client, 0);
        }
        memset(rps_ring_back(&client), (int)(i & 255), bytes_of(i));
        rps_ring_publish(&client, bytes_of(i));
        wake(&client, server_bell, RPS_RING_FOR_DATA);
    }
    return NULL;
}

START_TEST(whoever_sleeps_is_woken)
{
    pthread_t thread;
    uint8_t copy[9064];

    open_rings();
    server_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_eq(pthread_create(&thread, NULL, produce, NULL), 0);
    for (uint32_t i = 0; i < FRAMES; i++) {
        while (has(&server) < bytes_of(i)) {
            if (i % 3 == 0 && rps_ring_spin(&server, 10)) {
                continue;
            }
            rps_ring_sleep(&server, RPS_RING_FOR_DATA);
            if (has(&server) < bytes_of(i)) {
                wait_for(server_bell);
            }
            rps_ring_sleep(&server, 0);
        }
        rps_ring_take(&server, copy, bytes_of(i));
        rps_ring_release(&server);
        wake(&server, client_bell, RPS_RING_FOR_ROOM);
        ck_assert_uint_eq(copy[0], i & 255);
        ck_assert_uint_eq(copy[bytes_of(i) - 1], i & 255);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)close(server_bell);
    (void)close(client_bell);
    close_rings();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("ring");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, both_directions_carry_bytes_and_meet_nowhere);
    tcase_add_test(tcase, frames_lie_in_a_row_across_the_ends);
    tcase_add_loop_test(tcase, positions_that_cannot_be_are_refused, 0, 5);
    tcase_add_test(tcase, sizes_are_powers_of_two_within_limits);
    tcase_add_test(tcase, whoever_sleeps_is_woken);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
