/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which way a client takes to its server, and what is particular to the ways
 * that stay on this host.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct servers servers;
static uint32_t reconnect_ms; /* of who is opened next; 0: not again */
static char lines[2048];      /* what was reported */

static void
keep_line(void *context, const char *line)
{
    size_t used = strlen(lines);

    (void)snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
}

static rps_status
try_open(enum rps_transport transport, const char *unix_dir,
        rps_client **client_out)
{
    rps_client_options options;
    rps_cluster cluster = servers_cluster(&servers, NULL, 0, 1);
    rps_status status;

    lines[0] = '\0';
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.transport = transport;
    options.unix_dir = unix_dir;
    options.connect_timeout_ms = 5000;
    options.reconnect_timeout_ms = reconnect_ms;
    options.report = keep_line;
    options.flags = servers_client_flags();
    status = rps_client_open(client_out, &options);
    rps_cluster_finish(&cluster);
    return status;
}

static rps_client *
open_as(enum rps_transport transport, const char *unix_dir)
{
    rps_client *client = NULL;

    must(try_open(transport, unix_dir, &client));
    return client;
}

static rps_embedding_table *
table_of(rps_client *client, uint32_t dim)
{
    rps_table_spec spec;
    rps_embedding_table *table = NULL;

    rps_table_spec_init(&spec, "emb", dim, RPS_OPTIMIZER_SGD);
    must(rps_get_embedding_table(client, &spec, &table));
    return table;
}

START_TEST(transport_that_is_asked_for_is_taken)
{
    const enum rps_transport asked = (enum rps_transport)_i;
    char expected[32];
    char *json = NULL;
    rps_client *client;

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = open_as(asked, servers.dir);
    ck_assert_int_eq(rps_server_transport(client, 0), asked);
    (void)snprintf(
            expected, sizeof(expected), "\"%s\":1", rps_transport_str(asked));
    must(rps_stat(client, 0, &json));
    ck_assert_msg(strstr(json, expected) != NULL, "%s", json);
    free(json);
    ck_assert_int_eq(rps_server_transport(client, 1), RPS_TRANSPORT_AUTO);
    ck_assert_int_eq(rps_server_transport(NULL, 0), RPS_TRANSPORT_AUTO);
    ck_assert_str_eq(lines, "");
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(auto_takes_shared_memory_and_tells_when_it_cannot)
{
    rps_client *client;

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = open_as(RPS_TRANSPORT_AUTO, servers.dir);
    ck_assert_int_eq(rps_server_transport(client, 0), RPS_TRANSPORT_SHM);
    ck_assert_str_eq(lines, "");
    rps_client_close(client);

    client = open_as(RPS_TRANSPORT_AUTO, "off");
    ck_assert_int_eq(rps_server_transport(client, 0), RPS_TRANSPORT_TCP);
    ck_assert_str_eq(lines, ""); /* that was asked for */
    rps_client_close(client);

    ck_assert_int_eq(chmod(servers.dir, 0755), 0);
    client = open_as(RPS_TRANSPORT_AUTO, servers.dir);
    ck_assert_int_eq(rps_server_transport(client, 0), RPS_TRANSPORT_TCP);
    ck_assert_msg(strstr(lines, "reached by tcp: ") != NULL &&
                          strstr(lines, "chmod 700") != NULL,
            "%s", lines);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(way_that_is_not_there_is_named)
{
    rps_client *client = NULL;

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = open_as(RPS_TRANSPORT_TCP, "off"); /* it is up */
    rps_client_close(client);
    must_fail(try_open((enum rps_transport)_i, "/nowhere", &client),
            RPS_E_UNREACHABLE, "no Unix socket /nowhere/ps-0-");
    ck_assert_ptr_null(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(local_is_for_who_has_no_cluster)
{
    rps_client *client = NULL;

    servers = (struct servers){0};
    must_fail(try_open(RPS_TRANSPORT_TCP, NULL, &client), RPS_E_INVAL,
            "transport tcp: there is no cluster");
    must_fail(try_open((enum rps_transport)9, NULL, &client), RPS_E_INVAL,
            "transport 9");
    client = open_as(RPS_TRANSPORT_LOCAL, NULL);
    ck_assert_int_eq(rps_server_transport(client, 0), RPS_TRANSPORT_LOCAL);
    rps_client_close(client);
    if (!servers_start(&servers, 1)) {
        return;
    }
    must_fail(try_open(RPS_TRANSPORT_LOCAL, NULL, &client), RPS_E_INVAL,
            "transport local: there is a cluster of 1");
    servers_stop(&servers);
}
END_TEST

START_TEST(descriptor_is_readable_when_the_answer_is_in)
{
    const uint64_t key = 7;
    float row[4] = {0};
    rps_ticket ticket;
    rps_client *client;
    rps_lookup lookup = {.keys = &key, .key_count = 1, .rows = row};
    struct pollfd poll_fd = {.events = POLLIN};
    int done = 0;
    int rounds = 0;

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = open_as((enum rps_transport)_i, servers.dir);
    lookup.table = table_of(client, 4);
    poll_fd.fd = rps_client_fd(client);
    for (int i = 0; i < 200; i++, done = 0) {
        must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
        while (done == 0) {
            ck_assert_int_eq(poll(&poll_fd, 1, 20000), 1);
            must(rps_poll(client, ticket, &done));
            rounds++;
        }
    }
    ck_assert_int_lt(rounds, 2000); /* it does not run hot */
    ck_assert_float_ne(row[0], 0);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

/* Frames larger than the ring, more of them than it holds, both ways. */
START_TEST(what_exceeds_the_ring_goes_in_pieces)
{
    enum {
        N = 3000,
        DIM = 64,
        DEPTH = 6
    };
    uint64_t *keys = calloc(N, sizeof(*keys));
    float *rows = calloc((size_t)N * DIM, sizeof(*rows));
    float *back = calloc((size_t)DEPTH * N * DIM, sizeof(*back));
    rps_ticket tickets[DEPTH];
    rps_client *client;
    rps_embedding_table *table;

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = open_as(RPS_TRANSPORT_SHM, servers.dir);
    table = table_of(client, DIM);
    for (uint32_t i = 0; i < N * DIM; i++) {
        keys[i / DIM] = i / DIM;
        rows[i] = (float)i;
    }
    must(rps_assign_rows(client, &(rps_assign){.table = table,
                                         .keys = keys,
                                         .key_count = N,
                                         .rows = rows}));
    for (int i = 0; i < DEPTH; i++) {
        rps_lookup lookup = {.table = table,
                .keys = keys,
                .key_count = i % 2 == 0 ? N : 40, /* some fit the ring */
                .rows = back + (size_t)i * N * DIM};

        must(rps_lookup_start(client, NULL, &lookup, 1, &tickets[i]));
    }
    rps_cancel(client, tickets[2]); /* its answer comes all the same */
    for (int i = 0; i < DEPTH; i++) {
        const size_t n = (i % 2 == 0 ? N : 40) * DIM * sizeof(float);

        if (i != 2) {
            must(rps_wait(client, tickets[i], 20000));
            ck_assert_mem_eq(back + (size_t)i * N * DIM, rows, n);
        }
    }
    rps_client_close(client);
    servers_stop(&servers);
    free(keys);
    free(rows);
    free(back);
}
END_TEST

START_TEST(server_that_dies_ends_the_wait)
{
    const uint64_t key = 7;
    float row[4];
    rps_client *client;
    rps_ticket ticket;
    rps_lookup lookup = {.keys = &key, .key_count = 1, .rows = row};

    if (!servers_start(&servers, 1)) {
        return;
    }
    client = open_as((enum rps_transport)_i, servers.dir);
    lookup.table = table_of(client, 4);
    ck_assert_int_eq(kill(servers.pids[0], SIGSTOP), 0);
    ck_assert_int_eq(
            waitpid(servers.pids[0], NULL, WUNTRACED), servers.pids[0]);
    must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
    must_fail(rps_wait(client, ticket, 50), RPS_E_TIMEOUT, "LOOKUP");
    servers_kill(&servers);
    must_fail(rps_wait(client, ticket, 20000), RPS_E_UNREACHABLE, "PS 0");
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(server_that_comes_again_is_reached_the_same_way)
{
    rps_client *client;

    if (!servers_start(&servers, 1)) {
        return;
    }
    reconnect_ms = 20000;
    client = open_as((enum rps_transport)_i, servers.dir);
    must(rps_ping(client, 0, NULL));
    servers_kill(&servers);
    servers_restart(&servers);
    must(rps_ping(client, 0, NULL));
    ck_assert_int_eq(rps_server_transport(client, 0), _i);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("transports");
    TCase *tcase = tcase_create("transports");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, transport_that_is_asked_for_is_taken,
            RPS_TRANSPORT_TCP, RPS_TRANSPORT_SHM + 1);
    tcase_add_test(tcase, auto_takes_shared_memory_and_tells_when_it_cannot);
    tcase_add_loop_test(tcase, way_that_is_not_there_is_named,
            RPS_TRANSPORT_UNIX, RPS_TRANSPORT_UNIX + 1);
    tcase_add_test(tcase, local_is_for_who_has_no_cluster);
    tcase_add_loop_test(tcase, descriptor_is_readable_when_the_answer_is_in,
            RPS_TRANSPORT_TCP, RPS_TRANSPORT_SHM + 1);
    tcase_add_test(tcase, what_exceeds_the_ring_goes_in_pieces);
    tcase_add_loop_test(tcase, server_that_dies_ends_the_wait,
            RPS_TRANSPORT_UNIX, RPS_TRANSPORT_SHM + 1);
    tcase_add_loop_test(tcase, server_that_comes_again_is_reached_the_same_way,
            RPS_TRANSPORT_UNIX, RPS_TRANSPORT_SHM + 1);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
