/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers for client tests: none (embedded), or real recpsd processes on
 * loopback ports. They die with the test. In the environment:
 * RECPS_TEST_ACCESS: they ask for a token and certificates;
 * RECPS_TEST_TRANSPORT: how they are reached, tcp if it is not there;
 * RECPS_TEST_THREAD: clients have a thread of their own;
 * RECPS_TEST_LEAN: numbers of servers, "02": tests with so many are skipped.
 */
#ifndef RPS_TESTS_UNIT_CLIENT_SERVERS_H
#define RPS_TESTS_UNIT_CLIENT_SERVERS_H

#include <recps/client.h>

#include <stdbool.h>
#include <sys/types.h>

#define SERVERS_MAX        3
#define SERVERS_RING_BYTES (128u << 10) /* large frames go in pieces */

struct servers {
    uint32_t count; /* 0: embedded */
    pid_t pids[SERVERS_MAX];
    char ps_hosts[128];
    char dir[64];        /* of checkpoints; removed at the end */
    char access_dir[64]; /* of token and certificate; "": plain servers */
    char token[80], cert[80], key[80];
    uint32_t reconnect_ms; /* of clients; 0: what is killed is gone */
};

/**
 * Start `count` servers. False: recpsd is not built (or RECPSD is not set);
 * the caller skips. Any other failure fails the test.
 */
bool servers_start(struct servers *servers, uint32_t count);

/** Start them again after servers_kill: the same ports and folder. */
void servers_restart(struct servers *servers);

/** SIGKILL and wait; a count of its own may follow in the same folder. */
void servers_kill(struct servers *servers);
void servers_kill_one(struct servers *servers, uint32_t ps);

/** Wait for the end of one; its exit code. */
int servers_wait_exit(struct servers *servers, uint32_t ps);

/** Kill and remove the folder. */
void servers_stop(struct servers *servers);

/** A worker (rank 0 of `workers` is the chief), or "evaluator", or NULL: a
 * tool. Finish the cluster. */
rps_cluster servers_cluster(const struct servers *servers, const char *role,
        uint32_t index, uint32_t workers);

/** What the environment asks for. */
uint32_t servers_client_flags(void);

/** What the servers ask for, and these flags; points into *servers. */
void servers_set_access(
        const struct servers *servers, rps_client_options *options);

/** Open or fail the test. */
rps_client *servers_open(const struct servers *servers, const char *role,
        uint32_t index, uint32_t workers);

/** The chief of a job with one replica. */
rps_client *servers_open_chief(const struct servers *servers);

/** Of a table that subtracts what is pushed: zeros, SGD, learning rate 1. */
rps_table_spec servers_counter_spec(const char *name, uint32_t dim);

/** Open it or fail the test. */
rps_embedding_table *servers_counter(
        rps_client *client, const char *name, uint32_t dim);

/** Status is OK, or the test fails with the words. */
#define must(call)                                                     \
    do {                                                               \
        rps_status must_status_ = (call);                              \
        ck_assert_msg(must_status_ == RPS_OK, "%s: %s: %s", #call,     \
                rps_status_str(must_status_), rps_client_error(NULL)); \
    } while (0)

/** Status is this one, and the words contain `text`. */
#define must_fail(call, status, text)                                  \
    do {                                                               \
        rps_status must_status_ = (call);                              \
        ck_assert_msg(must_status_ == (status), "%s: %s: %s", #call,   \
                rps_status_str(must_status_), rps_client_error(NULL)); \
        ck_assert_msg(strstr(rps_client_error(NULL), text) != NULL,    \
                "'%s' is not in: %s", text, rps_client_error(NULL));   \
    } while (0)

#endif /* RPS_TESTS_UNIT_CLIENT_SERVERS_H */
