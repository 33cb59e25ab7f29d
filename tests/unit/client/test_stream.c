/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies over a TCP socket, however their bytes come: every one is taken
 * once, whole and in order, and whoever polls the socket is woken for it.
 */
#include "client/channel.h"
#include "tests/unit/suite.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAMES_MAX 256u
#define LONG       (1u << 20) /* bytes of rows: much more than is read ahead */
#define WAKE_MS    5000

static int server_fd;
static struct rps_channel *channel;
static uint64_t taken[FRAMES_MAX]; /* request ids */
static size_t taken_count;

static void
begin(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    const int on = 1;
    const int listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(listen_fd, (struct sockaddr *)&at, bytes), 0);
    ck_assert_int_eq(listen(listen_fd, 1), 0);
    ck_assert_int_eq(getsockname(listen_fd, (struct sockaddr *)&at, &bytes), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, bytes), 0);
    server_fd = accept(listen_fd, NULL, NULL);
    ck_assert_int_ge(server_fd, 0);
    (void)close(listen_fd);
    ck_assert_int_eq(
            setsockopt(server_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)),
            0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    channel = rps_channel_stream_create(0, "127.0.0.1:1", fd, NULL);
    ck_assert_ptr_nonnull(channel);
    taken_count = 0;
}

static void
end(void)
{
    rps_channel_destroy(channel, false);
    (void)close(server_fd);
}

/* Byte i of a frame's array. */
static uint8_t
byte_of(uint64_t id, size_t i)
{
    return (uint8_t)(id * 31 + i + i / 251);
}

static uint8_t *
make_frame(uint64_t id, size_t array_bytes, size_t *length_out)
{
    const struct rps_header header = {.version = RPS_WIRE_VERSION,
            .opcode = RPS_OP_EMBEDDING_LOOKUP,
            .flags = RPS_FLAG_REPLY,
            .request_id = id};
    struct rps_builder builder;
    uint8_t *frame = NULL;
    char *bytes = malloc(array_bytes + 1);

    for (size_t i = 0; i < array_bytes; i++) {
        bytes[i] = (char)byte_of(id, i);
    }
    rps_builder_begin(&builder, &header, array_bytes > 0 ? 1 : 0);
    if (array_bytes > 0) {
        rps_builder_add_text(&builder, bytes, array_bytes);
    }
    ck_assert_int_eq(rps_builder_end(&builder, &frame, length_out), RPS_OK);
    free(bytes);
    return frame;
}

/* rps_reply_take_fn */
static rps_status
take(void *context, struct rps_channel *from, const struct rps_message *reply,
        struct rps_error *error)
{
    (void)context;
    (void)error;
    ck_assert_ptr_eq(from, channel);
    ck_assert_uint_lt(taken_count, FRAMES_MAX);
    taken[taken_count++] = reply->header.request_id;
    for (uint32_t i = 0; i < reply->section_count; i++) {
        const struct rps_section *section = &reply->sections[i];
        const uint8_t *bytes = rps_message_array(reply, section);

        for (size_t j = 0; j < section->bytes; j++) {
            ck_assert_uint_eq(bytes[j], byte_of(reply->header.request_id, j));
        }
    }
    return RPS_OK;
}

static rps_status
move(void)
{
    struct rps_error error = {.text = ""};

    return channel->ops->move(channel, take, NULL, &error);
}

/* As a client waits: moves when poll says so, and not otherwise. */
static void
wait_for(size_t count)
{
    while (taken_count < count) {
        struct pollfd entry = {.fd = -1};

        ck_assert(!channel->ops->arm(channel, true));
        entry.fd = channel->ops->watch(channel, &entry.events);
        ck_assert_msg(poll(&entry, 1, WAKE_MS) == 1,
                "nobody was woken for reply %zu", taken_count);
        ck_assert_int_eq(move(), RPS_OK);
    }
    ck_assert_uint_eq(taken_count, count);
}

static void
send_bytes(const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(server_fd, bytes, n, MSG_DONTWAIT);

        if (sent < 0) { /* it is full: read it as a client would */
            struct pollfd entry = {.fd = -1};
            entry.fd = channel->ops->watch(channel, &entry.events);
            ck_assert_int_eq(poll(&entry, 1, WAKE_MS), 1);
            ck_assert_int_eq(move(), RPS_OK);
            continue;
        }
        bytes += sent;
        n -= (size_t)sent;
    }
}

static void
send_whole(uint64_t id, size_t array_bytes)
{
    size_t n = 0;
    uint8_t *frame = make_frame(id, array_bytes, &n);

    send_bytes(frame, n);
    free(frame);
}

START_TEST(a_short_reply_may_come_byte_by_byte)
{
    size_t n = 0;
    uint8_t *frame = make_frame(7, 10, &n);

    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(taken_count, 0);
        send_bytes(frame + i, 1);
        ck_assert_int_eq(move(), RPS_OK);
    }
    wait_for(1);
    ck_assert_uint_eq(taken[0], 7);
    free(frame);
}
END_TEST

START_TEST(many_replies_may_come_at_once)
{
    for (uint64_t id = 0; id < 200; id++) {
        send_whole(id, id % 3 * 100);
    }
    wait_for(200); /* more than one move takes, and none is left lying */
    for (uint64_t id = 0; id < 200; id++) {
        ck_assert_uint_eq(taken[id], id);
    }
}
END_TEST

START_TEST(replies_of_every_length_around_what_is_read_ahead)
{
    uint64_t id = 0;

    for (size_t n = 4096 - 192; n < 4096 + 64; n += 4) {
        send_whole(id++, n);
        send_whole(id++, 1);
    }
    wait_for(id);
}
END_TEST

/* The rest is less than what was missing when the kernel was last told for how
 * much to wake: somebody else woke the client in between. */
START_TEST(a_long_reply_in_pieces_wakes_for_its_end)
{
    static const size_t pieces[] = {
            100, LONG / 2, LONG / 4, LONG / 4 - 70000, 1000, 65000};
    size_t n = 0;
    uint8_t *frame = make_frame(3, LONG, &n);
    size_t at = 0;

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        send_bytes(frame + at, pieces[i]);
        at += pieces[i];
        (void)usleep(2000);
        ck_assert_int_eq(move(), RPS_OK);
        ck_assert_uint_eq(taken_count, 0);
    }
    send_bytes(frame + at, n - at);
    wait_for(1);
    free(frame);
}
END_TEST

START_TEST(after_a_long_reply_a_short_one_wakes)
{
    for (uint64_t id = 0; id < 6; id += 2) {
        send_whole(id, LONG << (id / 2)); /* up to 4 MiB */
        wait_for(id + 1);
        send_whole(id + 1, 0);
        wait_for(id + 2);
    }
}
END_TEST

START_TEST(the_end_in_the_middle_of_a_long_reply_wakes)
{
    size_t n = 0;
    uint8_t *frame = make_frame(3, LONG, &n);
    struct pollfd entry = {.fd = -1};

    send_bytes(frame, 1000);
    (void)usleep(2000);
    ck_assert_int_eq(move(), RPS_OK);
    send_bytes(frame + 1000, 1000);
    ck_assert_int_eq(shutdown(server_fd, SHUT_WR), 0);
    entry.fd = channel->ops->watch(channel, &entry.events);
    ck_assert_int_eq(poll(&entry, 1, WAKE_MS), 1);
    while (poll(&entry, 1, 100) == 1 && move() == RPS_OK) {
    }
    ck_assert_int_eq(move(), RPS_E_UNREACHABLE);
    ck_assert_uint_eq(taken_count, 0);
    free(frame);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("client: stream");
    TCase *tcase = tcase_create("stream");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_short_reply_may_come_byte_by_byte);
    tcase_add_test(tcase, many_replies_may_come_at_once);
    tcase_add_test(tcase, replies_of_every_length_around_what_is_read_ahead);
    tcase_add_test(tcase, a_long_reply_in_pieces_wakes_for_its_end);
    tcase_add_test(tcase, after_a_long_reply_a_short_one_wakes);
    tcase_add_test(tcase, the_end_in_the_middle_of_a_long_reply_wakes);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
