/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of librecps that a test in Python drives: a command a line on
 * stdin, an answer in JSON a line on stdout.
 *
 *   push KEY N          N pushes, each of them waited for
 *   big KEY ROWS        one push of so many keys from KEY on, in many frames
 *   storm KEY DEPTH MS  pushes with DEPTH in flight for so long; "told" are
 *                       those that were acknowledged and are rolled back
 *   timed KEY MS        one push with a deadline
 *   polled KEY N        N pushes, by rps_client_fd() and rps_poll()
 *   lookup KEY          the row's first value
 *   start KEY ROWS      one push, not waited for; wait, cancel: its end
 *   alter RATE, erase KEY, drop, open, shutdown
 *   rolled_back PS      when no push to this server is unanswered any more
 *
 * The table is made with sgd at a rate of 1 and zeros, and each push adds 1
 * to its row: the row counts the pushes that were applied.
 */
#include <recps/client.h>

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DIM       4
#define DEPTH_MAX 1024

static rps_client *client;
static rps_embedding_table *table;

static unsigned long long
now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000 +
           (unsigned long long)now.tv_nsec / 1000000;
}

static rps_status
open_table(void)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, "emb", DIM, RPS_OPTIMIZER_SGD);
    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.learning_rate = 1.0f;
    return rps_get_embedding_table(client, &spec, &table);
}

static void
say(rps_status status)
{
    char words[600];
    size_t i;

    (void)snprintf(words, sizeof(words), "%s",
            status == RPS_OK ? "" : rps_client_error(client));
    for (i = 0; words[i] != '\0'; i++) {
        words[i] = words[i] == '"' || words[i] == '\\' ? ' ' : words[i];
    }
    (void)printf("\"status\": \"%s\", \"words\": \"%s\"}\n",
            rps_status_str(status), words);
    (void)fflush(stdout);
}

static rps_status
start(uint64_t key, uint32_t rows, uint32_t timeout_ms, rps_ticket *ticket)
{
    static const float one[DIM] = {-1, -1, -1, -1};
    uint64_t *keys = calloc(rows, sizeof(*keys));
    float *gradients = calloc(rows, sizeof(one));
    rps_push push = {.table = table,
            .keys = keys,
            .key_count = rows,
            .gradients = gradients,
            .learning_rate = NAN};
    rps_call call = {.timeout_ms = timeout_ms};
    rps_status status = RPS_E_NOMEM;
    uint32_t i;

    if (keys != NULL && gradients != NULL) {
        for (i = 0; i < rows; i++) {
            keys[i] = key + i;
            memcpy(gradients + (size_t)i * DIM, one, sizeof(one));
        }
        status = rps_push_start(client, &call, &push, 1, ticket);
    }
    free(keys);
    free(gradients);
    return status;
}

static rps_ticket started;

static rps_status
push_once(uint64_t key, uint32_t rows, uint32_t timeout_ms)
{
    rps_ticket ticket;
    rps_status status = start(key, rows, timeout_ms, &ticket);

    return status == RPS_OK ? rps_wait(client, ticket, 0) : status;
}

static void
do_push(uint64_t key, unsigned long long n)
{
    unsigned long long done = 0;
    rps_status status = RPS_OK;

    while (done < n) {
        status = push_once(key, 1, 0);
        if (status != RPS_OK) {
            break;
        }
        done++;
    }
    (void)printf("{\"done\": %llu, ", done);
    say(status);
}

/* A loop of one's own: asleep until the descriptor says that there is work. */
static rps_status
poll_until_done(rps_ticket ticket)
{
    struct pollfd ready = {.fd = rps_client_fd(client), .events = POLLIN};
    rps_status status;
    int done = 0;

    for (;;) {
        status = rps_poll(client, ticket, &done);
        if (done != 0 || status != RPS_OK) {
            return status;
        }
        if (poll(&ready, 1, 5000) == 0) {
            (void)fprintf(stderr, "nothing woke it for 5 s\n");
            exit(70);
        }
    }
}

static void
do_polled(uint64_t key, unsigned long long n)
{
    unsigned long long done = 0;
    rps_status status = RPS_OK;
    rps_ticket ticket;

    while (done < n && status == RPS_OK) {
        status = start(key, 1, 0, &ticket);
        status = status == RPS_OK ? poll_until_done(ticket) : status;
        done += status == RPS_OK;
    }
    (void)printf("{\"done\": %llu, ", done);
    say(status);
}

/* What a storm came to. */
struct storm {
    unsigned long long acknowledged, told, void_pushes, rollbacks;
};

/* A server began anew: learn what is lost, and open the table again. */
static rps_status
recover(struct storm *storm)
{
    rps_rollback lost;
    rps_status status = rps_client_rolled_back(client, 0, &lost);

    if (status == RPS_OK && lost.last != 0) {
        storm->told += lost.pushes;
        storm->rollbacks++;
        status = open_table();
    }
    return status;
}

static rps_status
take(rps_status status, struct storm *storm)
{
    if (status == RPS_OK) {
        storm->acknowledged++;
        return RPS_OK;
    }
    storm->void_pushes += status == RPS_E_ROLLED_BACK;
    return status == RPS_E_ROLLED_BACK ? RPS_OK : status;
}

static void
do_storm(uint64_t key, unsigned depth, unsigned long long ms)
{
    static rps_ticket tickets[DEPTH_MAX];
    const unsigned long long end = now_ms() + ms;
    struct storm storm = {0};
    rps_status status = RPS_OK;
    unsigned long long first = 0; /* oldest in flight */
    unsigned long long next = 0;

    depth = depth > DEPTH_MAX ? DEPTH_MAX : depth;
    while (status == RPS_OK && (now_ms() < end || first < next)) {
        if (now_ms() < end && next - first < depth) {
            status = start(key, 1, 0, &tickets[next % DEPTH_MAX]);
            next += status == RPS_OK;
            if (status == RPS_E_ROLLED_BACK) {
                status = RPS_OK; /* told below, when none is in flight */
            }
            if (status != RPS_OK || next - first < depth) {
                if (first == next) {
                    status = status == RPS_OK ? recover(&storm) : status;
                }
                if (first == next || status != RPS_OK) {
                    continue;
                }
            }
        }
        status =
                take(rps_wait(client, tickets[first++ % DEPTH_MAX], 0), &storm);
    }
    if (status == RPS_OK) {
        status = recover(&storm);
    }
    (void)printf("{\"acknowledged\": %llu, \"told\": %llu, \"void\": %llu, "
                 "\"rollbacks\": %llu, ",
            storm.acknowledged, storm.told, storm.void_pushes, storm.rollbacks);
    say(status);
}

static void
do_lookup(uint64_t key)
{
    float row[DIM] = {0};
    rps_status status = rps_embedding_lookup(table, 1, &key, row);

    (void)printf("{\"value\": %.1f, ", (double)row[0]);
    say(status);
}

static void
do_rolled_back(uint32_t ps)
{
    rps_rollback lost;
    rps_status status = rps_client_rolled_back(client, ps, &lost);
    rps_rollback more = lost;

    while (status == RPS_OK && more.unanswered > 0) {
        status = rps_ping(client, ps, NULL);
        status = status == RPS_OK ? rps_client_rolled_back(client, ps, &more)
                                  : status;
    }
    (void)printf("{\"first\": %llu, \"last\": %llu, \"pushes\": %llu, "
                 "\"acknowledged\": %llu, \"unanswered\": %llu, ",
            (unsigned long long)lost.first, (unsigned long long)lost.last,
            (unsigned long long)lost.pushes,
            (unsigned long long)more.acknowledged,
            (unsigned long long)more.unanswered);
    say(status);
}

static void
do_other(const char *what, uint64_t key, const char *word)
{
    char fields[80];
    rps_status status = RPS_E_INVAL;

    if (strcmp(what, "alter") == 0) {
        (void)snprintf(fields, sizeof(fields), "{\"learning_rate\": %s}", word);
        status = rps_alter_table(client, "emb", fields);
    } else if (strcmp(what, "erase") == 0) {
        status = rps_erase_rows(client, "emb", 1, &key, NULL);
    } else if (strcmp(what, "drop") == 0) {
        status = rps_drop_table(client, "emb", NULL);
    } else if (strcmp(what, "shutdown") == 0) {
        status = rps_shutdown(client);
    } else if (strcmp(what, "wait") == 0) {
        status = rps_wait(client, started, 0);
    } else if (strcmp(what, "cancel") == 0) {
        rps_cancel(client, started);
        status = RPS_OK;
    } else if (strcmp(what, "open") == 0) {
        status = open_table();
    }
    (void)printf("{");
    say(status);
}

static void
obey(const char *line)
{
    char what[16] = "";
    char word[32] = "";
    unsigned long long a = 0, b = 0;
    uint64_t key;

    (void)sscanf(line, "%15s %31s %llu %llu", what, word, &a, &b);
    key = strtoull(word, NULL, 10);
    if (strcmp(what, "push") == 0) {
        do_push(key, a);
    } else if (strcmp(what, "polled") == 0) {
        do_polled(key, a);
    } else if (strcmp(what, "big") == 0 || strcmp(what, "timed") == 0) {
        (void)printf("{");
        say(what[0] == 'b' ? push_once(key, (uint32_t)a, 0)
                           : push_once(key, 1, (uint32_t)a));
    } else if (strcmp(what, "start") == 0) {
        (void)printf("{");
        say(start(key, (uint32_t)a, 0, &started));
    } else if (strcmp(what, "storm") == 0) {
        do_storm(key, (unsigned)a, b);
    } else if (strcmp(what, "lookup") == 0) {
        do_lookup(key);
    } else if (strcmp(what, "rolled_back") == 0) {
        do_rolled_back((uint32_t)key);
    } else {
        do_other(what, key, word);
    }
}

static void
report(void *context, const char *line)
{
    (void)fprintf(stderr, "%s\n", line);
}

int
main(int argc, char **argv)
{
    rps_cluster_options cluster_options;
    rps_cluster_error error = {0};
    rps_cluster cluster;
    rps_client_options options;
    char line[256];

    if (argc != 3 && argc != 4) {
        (void)fprintf(stderr,
                "usage: pusher HOST:PORT[,...] RECONNECT_MS [TOKEN_FILE]\n");
        return 64;
    }
    rps_cluster_options_init(&cluster_options);
    cluster_options.tf_config_file = NULL;
    cluster_options.tf_config_env = NULL;
    cluster_options.ps_hosts = argv[1];
    cluster_options.task_optional = 1;
    if (rps_cluster_resolve(&cluster, &cluster_options, &error) != RPS_OK) {
        (void)fprintf(stderr, "%s\n", error.message);
        return 64;
    }
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.connect_timeout_ms = 30000;
    options.reconnect_timeout_ms = (uint32_t)strtoul(argv[2], NULL, 10);
    options.token_file = argc == 4 ? argv[3] : NULL;
    options.report = report;
    options.flags = getenv("RECPS_TEST_THREAD") != NULL ? RPS_CLIENT_THREAD : 0;
    if (rps_client_open(&client, &options) != RPS_OK ||
            open_table() != RPS_OK) {
        (void)fprintf(stderr, "%s\n", rps_client_error(client));
        return 69;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        obey(line);
    }
    rps_client_close(client);
    rps_cluster_finish(&cluster);
    return 0;
}
