/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that lies. It answers HELLO and tables as it should, and a lookup
 * or a scan with one thing wrong: the client must refuse all of it, keep the
 * caller's array as it was and close the connection.
 */
#include "base/hash.h"
#include "proto/message.h"
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum lie {
    LIE_NONE,
    LIE_ONE_ROW_LESS,
    LIE_ANOTHER_DIM,
    LIE_ANOTHER_TABLE,
    LIE_NO_ROWS,
    LIE_ANOTHER_REQUEST,
    LIE_ANOTHER_OPCODE,
    LIE_NO_REPLY_FLAG,
    LIE_POSITIVE_STATUS,
    LIE_BAD_MAGIC,
    LIE_SECTION_OUTSIDE,
    LIE_MORE,
    LIE_HANG_UP,
    LIE_HALF_A_FRAME,
    LIE_ANOTHER_VALUE,
    LIE_COUNT, /* of lookups; those that follow are of scans */
    LIE_MORE_KEYS_THAN_ASKED = LIE_COUNT,
    LIE_LESS_META_THAN_KEYS,
    LIE_NO_META,
    LIE_NO_CURSOR,
    LIE_END_WITH_KEYS,
    LIE_ANOTHER_SCAN,
    LIE_END,
    LIE_SCALE /* of i8 rows: negative */
};

struct liar {
    int listen_fd;
    char hosts[32];
    enum lie lie;
    char taken_back[64]; /* the text of a CANCEL */
};

static bool
read_all(int fd, uint8_t *bytes, size_t n)
{
    return recv(fd, bytes, n, MSG_WAITALL) == (ssize_t)n;
}

static void
send_built(int fd, struct rps_builder *builder, enum lie lie)
{
    uint8_t *frame = NULL;
    size_t n = 0;

    ck_assert_int_eq(rps_builder_end(builder, &frame, &n), RPS_OK);
    if (lie == LIE_BAD_MAGIC) {
        frame[0] ^= 1;
    } else if (lie == LIE_SECTION_OUTSIDE) {
        frame[RPS_HEADER_BYTES + 8 + 25] ^= 0x7f; /* its offset */
    } else if (lie == LIE_HALF_A_FRAME) {
        n /= 2;
    }
    (void)send(fd, frame, n, MSG_NOSIGNAL);
    free(frame);
}

static void
answer_text(int fd, struct rps_header header, const char *text)
{
    struct rps_builder builder;

    header.flags = RPS_FLAG_REPLY;
    header.status = 0;
    rps_builder_begin(&builder, &header, 1);
    rps_builder_add_text(&builder, text, strlen(text));
    send_built(fd, &builder, LIE_NONE);
}

static void
answer_lookup(int fd, struct rps_header header, uint64_t table, uint64_t keys,
        enum lie lie)
{
    const float ones[64] = {lie == LIE_SCALE ? -1 : 1};
    struct rps_builder builder;
    struct rps_section rows = {.table_id = table ^ (lie == LIE_ANOTHER_TABLE),
            .kind = RPS_SECTION_ROWS,
            .value = lie == LIE_SCALE           ? RPS_VALUE_I8
                     : lie == LIE_ANOTHER_VALUE ? RPS_VALUE_F16
                                                : RPS_VALUE_F32,
            .dim = lie == LIE_ANOTHER_DIM ? 3 : 2,
            .count = keys - (lie == LIE_ONE_ROW_LESS)};

    header.flags = lie == LIE_NO_REPLY_FLAG ? 0 : RPS_FLAG_REPLY;
    header.flags |= lie == LIE_MORE ? RPS_FLAG_MORE : 0;
    header.request_id += lie == LIE_ANOTHER_REQUEST;
    header.opcode = lie == LIE_ANOTHER_OPCODE ? RPS_OP_PING : header.opcode;
    header.status = lie == LIE_POSITIVE_STATUS;
    rps_builder_begin(&builder, &header, 1);
    if (lie != LIE_NO_ROWS) {
        rps_builder_add(&builder, &rows, ones);
    }
    send_built(fd, &builder, lie);
}

/* A scan that asks for two keys. */
static void
answer_scan(int fd, struct rps_header header, enum lie lie)
{
    const uint64_t keys[3] = {5, 6, 7};
    const uint32_t meta[3] = {0};
    const char *text =
            lie == LIE_NO_CURSOR ? "{\"place\":\"3\"}"
            : lie == LIE_END_WITH_KEYS
                    ? "{\"place\":\"3\",\"hash\":\"1\",\"key\":\"6\","
                      "\"end\":true}"
                    : "{\"place\":\"3\",\"hash\":\"1\",\"key\":\"6\","
                      "\"end\":false}";
    struct rps_builder builder;
    struct rps_section section = {
            .table_id = rps_table_id("emb") ^ (lie == LIE_ANOTHER_SCAN),
            .kind = RPS_SECTION_KEYS,
            .count = lie == LIE_MORE_KEYS_THAN_ASKED ? 3 : 2};

    header.flags = RPS_FLAG_REPLY;
    header.status = 0;
    rps_builder_begin(&builder, &header, 3);
    rps_builder_add(&builder, &section, keys);
    section.kind = RPS_SECTION_META;
    section.count -= lie == LIE_LESS_META_THAN_KEYS;
    if (lie != LIE_NO_META) {
        rps_builder_add(&builder, &section, meta);
    }
    rps_builder_add_text(&builder, text, strlen(text));
    send_built(fd, &builder, lie);
}

/* One request; false: hang up. */
static bool
serve_one(int fd, struct liar *liar)
{
    const enum lie lie = liar->lie;
    uint8_t head[RPS_HEADER_BYTES];
    _Alignas(64) uint8_t frame[4096];
    struct rps_header header;
    struct rps_message message;
    struct rps_error error;
    const struct rps_section *keys;

    if (!read_all(fd, head, sizeof(head)) ||
            rps_header_decode(head, &header, &error) != RPS_OK) {
        return false;
    }
    memcpy(frame, head, sizeof(head));
    if (header.body_bytes > sizeof(frame) - sizeof(head) ||
            !read_all(fd, frame + sizeof(head), header.body_bytes) ||
            rps_message_open(&message, &header, frame,
                    sizeof(head) + header.body_bytes, &error) != RPS_OK) {
        return false;
    }
    switch (header.opcode) {
    case RPS_OP_HELLO:
        answer_text(fd, header,
                "{\"version\":1,\"epoch\":0,\"ps_count\":1,\"ps_index\":0,"
                "\"route_version\":1,\"last_number\":\"0\","
                "\"incarnation\":\"00000000000000aa\"}");
        return true;
    case RPS_OP_GET_EMBEDDING_TABLE: {
        char text[64];

        (void)snprintf(text, sizeof(text), "{\"table_id\":\"%016llx\"}",
                (unsigned long long)rps_table_id("emb"));
        answer_text(fd, header, text);
        return true;
    }
    case RPS_OP_STAT: /* not answered */
        return true;
    case RPS_OP_CANCEL: {
        char *text = rps_message_text(&message);

        (void)snprintf(liar->taken_back, sizeof(liar->taken_back), "%s", text);
        free(text);
        return true;
    }
    case RPS_OP_SCAN:
        answer_scan(fd, header, lie);
        return true;
    case RPS_OP_HOT_KEYS: /* not a pair of numbers */
        answer_text(fd, header, "{\"keys\":[[\"7\",\"2\"]]}");
        return true;
    case RPS_OP_EVICT:
        answer_text(fd, header, "{\"tables\":[{\"examined\":-1}]}");
        return true;
    case RPS_OP_DROP:
    case RPS_OP_ALTER_TABLE:
        answer_text(fd, header, "{\"rows\":\"many\",\"spec\":{\"x\":1}}");
        return true;
    case RPS_OP_ERASE:
        answer_text(fd, header, "{\"tables\":[]}");
        return true;
    default:
        keys = rps_message_find(&message, RPS_SECTION_KEYS, 0);
        if (keys == NULL || lie == LIE_HANG_UP) {
            return false;
        }
        answer_lookup(fd, header, keys->table_id, keys->count, lie);
        return lie != LIE_HALF_A_FRAME;
    }
}

static void *
serve(void *context)
{
    struct liar *liar = context;
    int fd = accept(liar->listen_fd, NULL, NULL);

    while (serve_one(fd, liar)) {
    }
    (void)close(fd);
    return NULL;
}

static void
listen_as(struct liar *liar, enum lie lie)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);

    *liar = (struct liar){.lie = lie};
    liar->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(
            bind(liar->listen_fd, (struct sockaddr *)&address, bytes), 0);
    ck_assert_int_eq(listen(liar->listen_fd, 1), 0);
    ck_assert_int_eq(
            getsockname(liar->listen_fd, (struct sockaddr *)&address, &bytes),
            0);
    (void)snprintf(liar->hosts, sizeof(liar->hosts), "127.0.0.1:%u",
            ntohs(address.sin_port));
}

START_TEST(reply_that_does_not_fit_reaches_no_array)
{
    const uint64_t keys[3] = {1, 2, 1};
    float rows[6] = {7, 7, 7, 7, 7, 7};
    const float before[6] = {7, 7, 7, 7, 7, 7};
    struct servers servers = {.count = 1};
    struct liar liar;
    rps_client *client;
    rps_embedding_table *table;
    rps_table_spec spec;
    pthread_t thread;
    rps_status status;

    listen_as(&liar, (enum lie)_i);
    (void)snprintf(
            servers.ps_hosts, sizeof(servers.ps_hosts), "%s", liar.hosts);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &liar), 0);
    client = servers_open_chief(&servers);
    rps_table_spec_init(&spec, "emb", 2, RPS_OPTIMIZER_SGD);
    must(rps_get_embedding_table(client, &spec, &table));
    status = rps_embedding_lookup(table, 3, keys, rows);
    if (liar.lie == LIE_NONE) {
        ck_assert_int_eq(status, RPS_OK);
        ck_assert_float_eq(rows[4], 1);
    } else {
        ck_assert_msg(status == RPS_E_CORRUPT || status == RPS_E_UNREACHABLE,
                "%s", rps_status_str(status));
        ck_assert_int_eq(status == RPS_E_UNREACHABLE,
                liar.lie == LIE_HANG_UP || liar.lie == LIE_HALF_A_FRAME);
        ck_assert_mem_eq(rows, before, sizeof(rows));
        ck_assert_ptr_nonnull(strstr(rps_client_error(client), "PS 0 (127"));
        must_fail(rps_embedding_lookup(table, 3, keys, rows), RPS_E_UNREACHABLE,
                "stays failed");
    }
    rps_client_close(client);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)close(liar.listen_fd);
}
END_TEST

/* A liar, and a client that is connected to it. */
static rps_client *
open_liar(struct liar *liar, enum lie lie, pthread_t *thread)
{
    struct servers servers = {.count = 1};

    listen_as(liar, lie);
    (void)snprintf(
            servers.ps_hosts, sizeof(servers.ps_hosts), "%s", liar->hosts);
    ck_assert_int_eq(pthread_create(thread, NULL, serve, liar), 0);
    return servers_open_chief(&servers);
}

static void
close_liar(struct liar *liar, rps_client *client, pthread_t thread)
{
    rps_client_close(client);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)close(liar->listen_fd);
}

START_TEST(a_scan_that_does_not_fit_reaches_no_array)
{
    rps_scanned rows[2] = {{.key = 99}, {.key = 99}};
    rps_scan scan = {0};
    size_t count = 7;
    struct liar liar;
    pthread_t thread;
    rps_client *client = open_liar(&liar, (enum lie)_i, &thread);

    must_fail(rps_scan_rows(client, "emb", &scan, 2, rows, &count),
            RPS_E_CORRUPT, "the reply to SCAN");
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_eq(rows[0].key, 99);
    ck_assert_uint_eq(scan.place, 0); /* it stays where it was */
    close_liar(&liar, client, thread);
}
END_TEST

START_TEST(texts_that_do_not_fit_are_corrupt)
{
    const uint64_t key = 1;
    rps_eviction sum;
    rps_hot hot[4];
    size_t count = 7;
    struct liar liar;
    pthread_t thread;
    rps_client *client = open_liar(&liar, LIE_NONE, &thread);

    must_fail(rps_hot_keys(client, "emb", 4, hot, &count), RPS_E_CORRUPT,
            "hot keys");
    ck_assert_uint_eq(count, 0);
    must_fail(rps_evict_rows(client, NULL, &sum, NULL), RPS_E_CORRUPT,
            "whole report");
    must_fail(rps_drop_table(client, "emb", NULL), RPS_E_CORRUPT, "rows");
    must_fail(rps_alter_table(client, "emb", "{\"rho\":0.5}"), RPS_E_CORRUPT,
            "legal spec");
    must_fail(rps_erase_rows(client, "emb", 1, &key, NULL), RPS_E_CORRUPT,
            "the reply to ERASE");
    close_liar(&liar, client, thread);
}
END_TEST

START_TEST(a_scale_that_no_row_has_is_corrupt)
{
    const uint64_t key = 1;
    float row[2] = {7, 7};
    rps_lookup lookup = {
            .keys = &key, .key_count = 1, .rows = row, .wire = RPS_VALUE_I8};
    rps_table_spec spec;
    rps_ticket ticket;
    struct liar liar;
    pthread_t thread;
    rps_client *client = open_liar(&liar, LIE_SCALE, &thread);

    rps_table_spec_init(&spec, "emb", 2, RPS_OPTIMIZER_SGD);
    must(rps_get_embedding_table(client, &spec, &lookup.table));
    must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
    must_fail(rps_wait(client, ticket, 0), RPS_E_CORRUPT, "i8 row 0 is -1");
    ck_assert_float_eq(row[0], 7);
    close_liar(&liar, client, thread);
}
END_TEST

START_TEST(a_call_that_runs_out_of_time_is_taken_back)
{
    struct servers servers = {.count = 1};
    rps_client_options options;
    rps_cluster cluster;
    struct liar liar;
    pthread_t thread;
    rps_client *client = NULL;
    char *json = NULL;

    listen_as(&liar, LIE_NONE);
    (void)snprintf(
            servers.ps_hosts, sizeof(servers.ps_hosts), "%s", liar.hosts);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &liar), 0);
    cluster = servers_cluster(&servers, NULL, 0, 1);
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.request_timeout_ms = 50;
    must(rps_client_open(&client, &options));
    rps_cluster_finish(&cluster);
    must_fail(rps_stat_digests(client, 0, &json), RPS_E_TIMEOUT, "STAT");
    close_liar(&liar, client, thread); /* HELLO was request 1 */
    ck_assert_str_eq(liar.taken_back, "{\"requests\":[\"2\"]}");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("hostile");
    TCase *tcase = tcase_create("hostile");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(
            tcase, reply_that_does_not_fit_reaches_no_array, 0, LIE_COUNT);
    tcase_add_loop_test(tcase, a_scan_that_does_not_fit_reaches_no_array,
            LIE_MORE_KEYS_THAN_ASKED, LIE_END);
    tcase_add_test(tcase, texts_that_do_not_fit_are_corrupt);
    tcase_add_test(tcase, a_scale_that_no_row_has_is_corrupt);
    tcase_add_test(tcase, a_call_that_runs_out_of_time_is_taken_back);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
