/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that changes its ring while the server reads it. One thread sends
 * lookups and pushes as it should; another writes over header, sections, keys
 * and gradients, and sometimes over the positions, all the time. Whatever the
 * server makes of it, it serves others, and what others have is as it was.
 * Under asan the server finds out what it read where it should not.
 */
#include "base/hash.h"
#include "base/unix_socket.h"
#include "proto/message.h"
#include "proto/ring.h"
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIM    4u
#define KEYS   64u
#define LIVES  24
#define FRAMES 400

static struct servers servers;

/* A connection that says HELLO and asks for a ring, by hand. */
struct peer {
    int fd;
    int bell_fd; /* the server's */
    int pipe_fd; /* ours */
    struct rps_ring ring;
    uint64_t request_id;
    atomic_bool over; /* both threads */
};

static struct rps_header
header_of(struct peer *peer, uint16_t opcode)
{
    return (struct rps_header){.version = RPS_WIRE_VERSION,
            .opcode = opcode,
            .request_id = ++peer->request_id,
            .route_version = 1};
}

static void
send_text(struct peer *peer, uint16_t opcode, const char *text)
{
    const struct rps_header header = header_of(peer, opcode);
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t n = 0;

    rps_builder_begin(&builder, &header, 1);
    if (text != NULL) {
        rps_builder_add_text(&builder, text, strlen(text));
    }
    ck_assert_int_eq(rps_builder_end(&builder, &frame, &n), RPS_OK);
    ck_assert_int_eq(send(peer->fd, frame, n, MSG_NOSIGNAL), (ssize_t)n);
    free(frame);
}

/* The body of a reply on the socket, and the descriptors that it brought. */
static void
receive(struct peer *peer, char *body, size_t bytes, int fds[RPS_RING_FDS])
{
    uint8_t head[RPS_HEADER_BYTES];
    struct iovec vector = {.iov_base = head, .iov_len = sizeof(head)};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(RPS_RING_FDS * sizeof(int))];
    } control = {.bytes = ""};
    struct msghdr message = {.msg_iov = &vector,
            .msg_iovlen = 1,
            .msg_control = control.bytes,
            .msg_controllen = sizeof(control.bytes)};
    struct rps_header header;
    struct rps_error error;

    ck_assert_int_eq(
            recvmsg(peer->fd, &message, MSG_WAITALL), (ssize_t)sizeof(head));
    if (CMSG_FIRSTHDR(&message) != NULL) {
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)),
                RPS_RING_FDS * sizeof(int));
    }
    ck_assert_int_eq(rps_header_decode(head, &header, &error), RPS_OK);
    ck_assert_int_eq(header.status, RPS_OK);
    ck_assert_uint_lt(header.body_bytes, bytes);
    ck_assert_int_eq(recv(peer->fd, body, header.body_bytes, MSG_WAITALL),
            (ssize_t)header.body_bytes);
}

static void
open_peer(struct peer *peer)
{
    struct sockaddr_un address;
    struct rps_error error;
    unsigned port = 0;
    char body[4096] = "";
    int fds[RPS_RING_FDS] = {-1, -1, -1};

    *peer = (struct peer){.fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    ck_assert_int_eq(sscanf(servers.ps_hosts, "127.0.0.1:%u", &port), 1);
    ck_assert_int_eq(rps_unix_address(&address, servers.dir, "recps", 0,
                             (uint16_t)port, &error),
            RPS_OK);
    ck_assert_int_eq(
            connect(peer->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    send_text(peer, RPS_OP_HELLO,
            "{\"versions\":[1,1],\"job_id\":\"recps\",\"job_seed\":\"0\","
            "\"ps_count\":1,\"ps_index\":0,\"role\":\"none\"}");
    receive(peer, body, sizeof(body), fds);
    send_text(peer, RPS_OP_SHM_ATTACH, NULL);
    receive(peer, body, sizeof(body), fds);
    ck_assert_int_ge(fds[2], 0);
    ck_assert_int_eq(fcntl(fds[0], F_GET_SEALS) &
                             (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    ck_assert_int_eq(rps_ring_map(&peer->ring, fds[0], SERVERS_RING_BYTES,
                             RPS_RING_CLIENT, &error),
            RPS_OK);
    (void)close(fds[0]);
    peer->bell_fd = fds[1];
    peer->pipe_fd = fds[2];
}

static void
close_peer(struct peer *peer)
{
    (void)close(peer->fd);
    (void)close(peer->bell_fd);
    (void)close(peer->pipe_fd);
    rps_ring_unmap(&peer->ring);
}

/* A push or a lookup of some keys, as it should be. */
static size_t
build(struct peer *peer, uint8_t **frame_out)
{
    struct rps_header header =
            header_of(peer, peer->request_id % 2 == 0 ? RPS_OP_EMBEDDING_LOOKUP
                                                      : RPS_OP_PUSH_GRADIENTS);
    struct rps_section section = {.table_id = rps_table_id("scratch"),
            .kind = RPS_SECTION_KEYS,
            .count = KEYS};
    struct rps_builder builder;
    uint64_t keys[KEYS];
    float rows[KEYS * DIM] = {1};
    size_t n = 0;

    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    rps_builder_begin(&builder, &header, 2);
    rps_builder_add(&builder, &section, keys);
    if (header.opcode == RPS_OP_PUSH_GRADIENTS) {
        section.kind = RPS_SECTION_ROWS;
        section.dim = DIM;
        section.learning_rate = 1.0f;
        rps_builder_add(&builder, &section, rows);
    }
    ck_assert_int_eq(rps_builder_end(&builder, frame_out, &n), RPS_OK);
    return n;
}

/* Is the connection over at the server? */
static bool
is_lost(const struct peer *peer)
{
    char bells[64];
    ssize_t n;

    do {
        n = read(peer->pipe_fd, bells, sizeof(bells));
    } while (n > 0);
    return n == 0;
}

static void
wake(struct peer *peer, uint32_t reason)
{
    const uint64_t one = 1;

    if (rps_ring_wakes(&peer->ring, reason)) {
        ck_assert_int_eq(write(peer->bell_fd, &one, sizeof(one)), 8);
    }
}

/* Answers are thrown away; false: the ring or the connection is over. */
static bool
discard(struct peer *peer, size_t room)
{
    struct rps_error error;
    size_t n = 0;

    for (int tries = 0; tries < 20000; tries++) {
        if (rps_ring_has(&peer->ring, &n, &error) != RPS_OK) {
            return false;
        }
        rps_ring_take(&peer->ring, NULL, n);
        rps_ring_release(&peer->ring);
        wake(peer, RPS_RING_FOR_ROOM);
        if (rps_ring_room(&peer->ring, &n, &error) != RPS_OK) {
            return false;
        }
        if (n >= room) {
            return true;
        }
        if (is_lost(peer)) {
            return false;
        }
        (void)usleep(50);
    }
    return false; /* it waits for what we have spoilt: another life */
}

/* The race is the test: tsan must not see this side of it. */
#define UNSEEN __attribute__((no_sanitize_thread, noinline))

/* Over the frames around the tail: those that are written and read now. */
static UNSEEN void *
scribble(void *context)
{
    struct peer *peer = context;
    struct rps_ring_words *own = peer->ring.own;
    volatile uint8_t *out = peer->ring.out;
    uint64_t state = 0;

    while (!atomic_load(&peer->over)) {
        const uint64_t draw = rps_mix64(++state);
        const uint64_t at = atomic_load(&own->tail) + draw % 4096 - 2048;

        out[at & (peer->ring.bytes - 1)] = (uint8_t)(draw >> 32);
        if (draw % 400000 == 0) {
            atomic_store(&own->tail, draw >> 7);
        } else if (draw % 400000 == 1) {
            atomic_store(&own->head, draw >> 9);
        }
    }
    return NULL;
}

/* One connection, until it is lost or has sent enough. */
static bool
live(void)
{
    struct peer peer;
    pthread_t thread;
    bool lost = false;
    int i;

    open_peer(&peer);
    ck_assert_int_eq(pthread_create(&thread, NULL, scribble, &peer), 0);
    for (i = 0; i < FRAMES && !lost; i++) {
        uint8_t *frame = NULL;
        size_t n = build(&peer, &frame);

        lost = !discard(&peer, (n + 63) / 64 * 64);
        if (!lost) {
            memcpy(rps_ring_back(&peer.ring), frame, n);
            rps_ring_publish(&peer.ring, n);
            wake(&peer, RPS_RING_FOR_DATA);
        }
        free(frame);
    }
    atomic_store(&peer.over, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    close_peer(&peer);
    return lost;
}

static rps_embedding_table *
open_table(rps_client *client, const char *name)
{
    rps_table_spec spec;
    rps_embedding_table *table = NULL;

    rps_table_spec_init(&spec, name, DIM, RPS_OPTIMIZER_SGD);
    spec.initializer = RPS_INITIALIZER_ZEROS;
    must(rps_get_embedding_table(client, &spec, &table));
    return table;
}

START_TEST(who_changes_the_ring_hurts_himself_alone)
{
    const uint64_t keys[2] = {1, 2};
    const float mine[2 * DIM] = {1, 2, 3, 4, 5, 6, 7, 8};
    float rows[2 * DIM] = {0};
    rps_embedding_table *table;
    rps_client *client;
    int lost = 0;

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = servers_open_chief(&servers);
    ck_assert_int_eq(rps_server_transport(client, 0), RPS_TRANSPORT_SHM);
    (void)open_table(client, "scratch");
    table = open_table(client, "mine");
    must(rps_assign_rows(client, &(rps_assign){.table = table,
                                         .keys = keys,
                                         .key_count = 2,
                                         .rows = mine}));
    for (int i = 0; i < LIVES; i++) {
        lost += live();
        must(rps_embedding_lookup(table, 2, keys, rows));
        ck_assert_mem_eq(rows, mine, sizeof(rows));
    }
    ck_assert_int_gt(lost, 0); /* it did hurt */
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("ring_hostile");
    TCase *tcase = tcase_create("ring_hostile");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, who_changes_the_ring_hurts_himself_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
