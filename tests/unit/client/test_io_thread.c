/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RPS_CLIENT_THREAD: what goes on between the calls, over each transport (the
 * loop's index). rps_client_traffic() and rps_server_transport() only look:
 * what they see moving, the thread moved. The other tests of the client run
 * with it, too (RECPS_TEST_THREAD).
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIM     4
#define WAIT_MS 30000 /* until a test has failed */

static struct servers servers;
static rps_client *client;
static rps_embedding_table *table;
static pthread_t caller;

static bool
begin(int transport, void (*change)(rps_client_options *options))
{
    rps_client_options options;
    rps_cluster cluster;

    if (!servers_start(
                &servers, (uint32_t)(transport != RPS_TRANSPORT_LOCAL))) {
        return false;
    }
    cluster = servers_cluster(&servers, NULL, 0, 1);
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.connect_timeout_ms = WAIT_MS;
    options.unix_dir = servers.dir;
    options.transport = (enum rps_transport)transport;
    options.flags = RPS_CLIENT_THREAD;
    if (change != NULL) {
        change(&options);
    }
    must(rps_client_open(&client, &options));
    rps_cluster_finish(&cluster);
    table = servers_counter(client, "emb", DIM);
    return true;
}

static void
end(void)
{
    rps_client_close(client);
    servers_stop(&servers);
}

static void
pause_server(void)
{
    ck_assert_int_eq(kill(servers.pids[0], SIGSTOP), 0);
    ck_assert_int_eq(
            waitpid(servers.pids[0], NULL, WUNTRACED), servers.pids[0]);
}

static rps_traffic
traffic(void)
{
    rps_traffic now;

    rps_client_traffic(client, &now);
    return now;
}

/* Until so many bytes have come; nothing here moves the client. */
static void
await_bytes(uint64_t bytes)
{
    for (int i = 0; i < WAIT_MS && traffic().received_bytes < bytes; i++) {
        (void)usleep(1000);
    }
    ck_assert_uint_ge(traffic().received_bytes, bytes);
}

static rps_ticket
start_lookup(size_t n, const uint64_t *keys, float *rows, uint32_t timeout_ms)
{
    const rps_lookup lookup = {
            .table = table, .keys = keys, .key_count = n, .rows = rows};
    const rps_call call = {.timeout_ms = timeout_ms};
    rps_ticket ticket;

    must(rps_lookup_start(client, &call, &lookup, 1, &ticket));
    return ticket;
}

static rps_ticket
start_push(uint64_t key)
{
    const float gradient[DIM] = {-1, -1, -1, -1};
    const rps_push push = {.table = table,
            .keys = &key,
            .key_count = 1,
            .gradients = gradient,
            .learning_rate = 1};
    rps_ticket ticket;

    must(rps_push_start(client, NULL, &push, 1, &ticket));
    return ticket;
}

static float
first_of(uint64_t key)
{
    float row[DIM];

    must(rps_embedding_lookup(table, 1, &key, row));
    return row[0];
}

START_TEST(answers_come_in_while_the_caller_computes)
{
    const uint64_t keys[3] = {1, 2, 3};
    float rows[3][DIM] = {{0}};
    uint64_t before;
    rps_ticket ticket;
    int done = 0;

    if (!begin(_i, NULL)) {
        return;
    }
    must(rps_wait(client, start_push(2), 0));
    before = traffic().received_bytes;
    ticket = start_lookup(3, keys, rows[0], 0);
    await_bytes(before + sizeof(rows));
    must(rps_poll(client, ticket, &done));
    ck_assert_int_eq(done, 1);
    ck_assert_float_eq(rows[0][0], 0);
    ck_assert_float_eq(rows[1][DIM - 1], 1);
    end();
}
END_TEST

/* More pushes than may be in flight: each waits for an answer to another. */
START_TEST(what_waits_for_room_is_sent_while_the_caller_computes)
{
    enum {
        PUSHES = 200
    };
    rps_ticket tickets[PUSHES];
    uint64_t answer, before;

    if (!begin(_i, NULL)) {
        return;
    }
    before = traffic().received_bytes;
    must(rps_wait(client, start_push(1), 0));
    answer = traffic().received_bytes - before;
    for (int i = 0; i < PUSHES; i++) {
        tickets[i] = start_push(7);
    }
    await_bytes(before + answer * (1 + PUSHES));
    for (int i = 0; i < PUSHES; i++) {
        must(rps_wait(client, tickets[i], 0));
    }
    ck_assert_float_eq(first_of(7), PUSHES);
    end();
}
END_TEST

START_TEST(a_deadline_ends_while_the_caller_computes)
{
    const uint64_t key = 7;
    float row[DIM];
    struct pollfd done = {.events = POLLIN};
    rps_ticket late, other;

    if (!begin(_i, NULL)) {
        return;
    }
    pause_server();
    late = start_lookup(1, &key, row, 20);
    other = start_lookup(1, &key, row, 0);
    done.fd = rps_client_fd(client);
    ck_assert_int_eq(poll(&done, 1, WAIT_MS), 1);
    must_fail(rps_wait(client, late, 0), RPS_E_TIMEOUT, "its time is over");
    ck_assert_int_eq(kill(servers.pids[0], SIGCONT), 0);
    must(rps_wait(client, other, 0));
    end();
}
END_TEST

static void
reconnect(rps_client_options *options)
{
    options->reconnect_timeout_ms = WAIT_MS;
}

static void
do_not_reconnect(rps_client_options *options)
{
    options->reconnect_timeout_ms = 0;
}

START_TEST(a_loss_is_found_while_the_caller_computes_and_told_in_words)
{
    const uint64_t key = 7;
    float row[DIM];
    rps_ticket ticket;

    if (!begin(_i, do_not_reconnect)) {
        return;
    }
    pause_server();
    ticket = start_lookup(1, &key, row, 0);
    servers_kill(&servers);
    for (int i = 0; i < WAIT_MS &&
                    rps_server_transport(client, 0) != RPS_TRANSPORT_AUTO;
            i++) {
        (void)usleep(1000);
    }
    ck_assert_int_eq(rps_server_transport(client, 0), RPS_TRANSPORT_AUTO);
    must_fail(rps_wait(client, ticket, 0), RPS_E_UNREACHABLE, "PS 0");
    must_fail(rps_embedding_lookup(table, 1, &key, row), RPS_E_UNREACHABLE,
            "stays failed");
    end();
}
END_TEST

/* Is the client that is tested connected to the server that is there now? */
static bool
is_back(rps_client *other, int transport)
{
    char wanted[32];
    char *json = NULL;
    bool back;

    (void)snprintf(wanted, sizeof(wanted), "\"%s\":%d",
            rps_transport_str((enum rps_transport)transport),
            transport == RPS_TRANSPORT_TCP ? 2 : 1);
    must(rps_stat(other, 0, &json));
    back = strstr(json, wanted) != NULL;
    free(json);
    return back;
}

START_TEST(a_server_is_reached_again_while_the_caller_computes)
{
    rps_client *other = NULL;
    rps_client_options options;
    rps_cluster cluster;
    rps_rollback lost = {.pushes = 0};
    bool back = false;

    if (!begin(_i, reconnect)) {
        return;
    }
    must(rps_wait(client, start_push(7), 0));
    servers_kill(&servers);
    servers_restart(&servers);
    cluster = servers_cluster(&servers, NULL, 0, 1);
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.connect_timeout_ms = WAIT_MS;
    options.transport = RPS_TRANSPORT_TCP;
    must(rps_client_open(&other, &options));
    rps_cluster_finish(&cluster);
    for (int i = 0; i < WAIT_MS / 10 && !back; i++) {
        (void)usleep(10000);
        back = is_back(other, _i);
    }
    ck_assert(back);
    rps_client_close(other);
    /* the server has said so; the client may still be reading it */
    for (int i = 0; i < WAIT_MS / 10 && lost.pushes == 0; i++) {
        (void)usleep(10000);
        must(rps_client_rolled_back(client, 0, &lost));
    }
    ck_assert_uint_eq(lost.pushes, 1);
    table = servers_counter(client, "emb", DIM);
    must(rps_wait(client, start_push(7), 0));
    ck_assert_float_eq(first_of(7), 1);
    end();
}
END_TEST

START_TEST(close_takes_back_what_is_in_flight)
{
    enum {
        ROWS = 5000,
        LOOKUPS = 20
    };
    uint64_t *keys = calloc(ROWS, sizeof(*keys));
    float *rows = calloc((size_t)ROWS * DIM * LOOKUPS, sizeof(*rows));

    if (begin(_i, NULL)) {
        for (uint64_t i = 0; i < ROWS; i++) {
            keys[i] = i;
        }
        for (size_t i = 0; i < LOOKUPS; i++) {
            (void)start_lookup(ROWS, keys, rows + i * ROWS * DIM, 0);
            (void)start_push(i);
        }
        end();
    }
    free(keys); /* nobody writes there any more: ASan and TSan would see it */
    free(rows);
}
END_TEST

START_TEST(canceled_rows_are_not_written_any_more)
{
    enum {
        ROWS = 5000,
        ROUNDS = 20
    };
    uint64_t *keys = calloc(ROWS, sizeof(*keys));

    if (!begin(_i, NULL)) {
        free(keys);
        return;
    }
    for (uint64_t i = 0; i < ROWS; i++) {
        keys[i] = i;
    }
    for (int i = 0; i < ROUNDS; i++) {
        float *rows = calloc((size_t)ROWS * DIM, sizeof(*rows));
        const rps_ticket ticket = start_lookup(ROWS, keys, rows, 0);

        (void)usleep(i % 4 * 100u); /* here, on its way, or in the middle */
        rps_cancel(client, ticket);
        free(rows);
    }
    must(rps_wait(client, start_push(9), 0));
    ck_assert_float_eq(first_of(9), 1);
    free(keys);
    end();
}
END_TEST

/* A child that is forked while the thread moves leaves everything alone. */
START_TEST(fork_at_any_time_harms_nobody)
{
    enum {
        ROWS = 3000,
        FORKS = 12
    };
    uint64_t *keys = calloc(ROWS, sizeof(*keys));
    float *rows = calloc((size_t)ROWS * DIM, sizeof(*rows));

    if (!begin(_i, NULL)) {
        free(keys);
        free(rows);
        return;
    }
    for (int i = 0; i < FORKS; i++) {
        const rps_ticket ticket = start_lookup(ROWS, keys, rows, 0);
        int state = 0;
        const pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            const bool told = rps_wait(client, ticket, 0) == RPS_E_FORKED &&
                              rps_client_fd(client) == -1;

            (void)rps_server_transport(client, 0);
            rps_client_close(client);
            _exit(told ? 0 : 1);
        }
        must(rps_wait(client, ticket, 0));
        ck_assert_int_eq(waitpid(pid, &state, 0), pid);
        ck_assert(WIFEXITED(state));
        ck_assert_int_eq(WEXITSTATUS(state), 0);
    }
    free(keys);
    free(rows);
    end();
}
END_TEST

static atomic_int asked;

static int
give_up_second(void *context)
{
    ck_assert(pthread_equal(pthread_self(), caller));
    return atomic_fetch_add(&asked, 1) > 0;
}

static void
report_to_caller(void *context, const char *line)
{
    ck_assert(pthread_equal(pthread_self(), caller));
}

static void
call_back(rps_client_options *options)
{
    caller = pthread_self();
    options->reconnect_timeout_ms = WAIT_MS;
    options->give_up = give_up_second;
    options->report = report_to_caller;
}

START_TEST(callbacks_are_called_by_who_waits)
{
    const uint64_t key = 7;
    float row[DIM];

    if (!begin(_i, call_back)) {
        return;
    }
    atomic_store(&asked, 0);
    servers_kill(&servers);
    (void)usleep(100000); /* the thread dials: it asks nobody */
    ck_assert_int_eq(atomic_load(&asked), 0);
    must_fail(rps_embedding_lookup(table, 1, &key, row), RPS_E_UNREACHABLE,
            "PS 0");
    ck_assert_int_ge(atomic_load(&asked), 2);
    end();
}
END_TEST

/* One thread at a time, but not always the same one. */
static void *
use_it(void *context)
{
    for (int i = 0; i < 20; i++) {
        must(rps_wait(client, start_push(3), 0));
    }
    return NULL;
}

START_TEST(another_thread_may_have_the_client)
{
    pthread_t user;

    if (!begin(_i, NULL)) {
        return;
    }
    (void)use_it(NULL);
    ck_assert_int_eq(pthread_create(&user, NULL, use_it, NULL), 0);
    ck_assert_int_eq(pthread_join(user, NULL), 0);
    (void)use_it(NULL);
    ck_assert_float_eq(first_of(3), 60);
    end();
}
END_TEST

START_TEST(flags_that_are_not_known_are_refused)
{
    rps_client_options options;

    rps_client_options_init(&options);
    options.flags = 2;
    must_fail(rps_client_open(&client, &options), RPS_E_INVAL,
            "options.flags: 0x2");
    ck_assert_ptr_null(client);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("io_thread");
    TCase *tcase = tcase_create("io_thread");
    const int first = RPS_TRANSPORT_TCP;
    const int all = RPS_TRANSPORT_LOCAL + 1;
    const int servers_alone = RPS_TRANSPORT_SHM + 1;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(
            tcase, answers_come_in_while_the_caller_computes, first, all);
    tcase_add_loop_test(tcase,
            what_waits_for_room_is_sent_while_the_caller_computes, first, all);
    tcase_add_loop_test(tcase, a_deadline_ends_while_the_caller_computes, first,
            servers_alone);
    tcase_add_loop_test(tcase,
            a_loss_is_found_while_the_caller_computes_and_told_in_words, first,
            servers_alone);
    tcase_add_loop_test(tcase,
            a_server_is_reached_again_while_the_caller_computes, first,
            servers_alone);
    tcase_add_loop_test(tcase, close_takes_back_what_is_in_flight, first, all);
    tcase_add_loop_test(
            tcase, canceled_rows_are_not_written_any_more, first, all);
    tcase_add_loop_test(tcase, fork_at_any_time_harms_nobody, first, all);
    tcase_add_loop_test(
            tcase, callbacks_are_called_by_who_waits, first, first + 1);
    tcase_add_loop_test(tcase, another_thread_may_have_the_client, first, all);
    tcase_add_test(tcase, flags_that_are_not_known_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
