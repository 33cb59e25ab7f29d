/* SPDX-License-Identifier: Apache-2.0 */
/* A table full of known rows, in process or behind a recpsd of its own. */
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "bench/bench.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASSIGN_ROWS  4096u
#define START_MS_MAX 10000u

uint64_t
bench_key(uint64_t i)
{
    return rps_mix64(i); /* a bijection: keys are distinct */
}

float
bench_value(uint64_t key, uint32_t column)
{
    return (float)(rps_mix64(key ^ column) >> 40);
}

/* recpsd stands beside this program, or in the build tree, or in PATH. */
static char *
server_path(const char *program)
{
    static const char *const places[] = {"recpsd", "../server/daemon/recpsd"};
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0) {
        snprintf(self, sizeof(self), "%s", program);
    } else {
        self[n] = '\0';
    }
    for (size_t i = 0; i < 2; i++) {
        char copy[4096];
        char *path = NULL;
        memcpy(copy, self, sizeof(copy));
        path = rps_format("%s/%s", dirname(copy), places[i]);
        if (path != NULL && access(path, X_OK) == 0) {
            return path;
        }
        free(path);
    }
    return strdup("recpsd");
}

static rps_status
server_start(struct bench_target *target, const struct bench_args *args,
        struct rps_error *error)
{
    char *path = server_path(args->program);
    char *option = NULL;

    snprintf(target->port_file, sizeof(target->port_file),
            "/tmp/recps-bench-%d.port", (int)getpid());
    unlink(target->port_file);
    option = rps_format("--port-file=%s", target->port_file);
    target->server_pid = fork();
    if (target->server_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unsetenv("TF_CONFIG");
        unsetenv("TF_CONFIG_FILE");
        execlp(path, path, "--bind=127.0.0.1:0", "--admin=off",
                "--log-level=warn", option, (char *)NULL);
        fprintf(stderr, "recps-bench: cannot run %s: %s\n", path,
                strerror(errno));
        _exit(127);
    }
    free(path);
    free(option);
    return target->server_pid < 0
                   ? rps_fail(error, RPS_E_IO, "fork: %s", strerror(errno))
                   : RPS_OK;
}

/* The port that the server wrote once it listened. */
static rps_status
server_port(struct bench_target *target, uint64_t *port_out,
        struct rps_error *error)
{
    const uint64_t end_ms = rps_clock_ms() + START_MS_MAX;

    while (rps_clock_ms() < end_ms) {
        char *text = NULL;
        size_t length = 0;
        const rps_status status =
                rps_file_read(target->port_file, 64, &text, &length, NULL);
        if (status == RPS_OK) {
            text[strcspn(text, "\n")] = '\0';
            const bool read = rps_parse_u64(text, port_out);
            free(text);
            if (read) {
                return RPS_OK;
            }
        }
        if (waitpid(target->server_pid, NULL, WNOHANG) != 0) {
            target->server_pid = 0;
            return rps_fail(error, RPS_E_UNREACHABLE,
                    "recpsd ended before it listened");
        }
        usleep(10000);
    }
    return rps_fail(error, RPS_E_TIMEOUT, "recpsd did not listen within %u s",
            START_MS_MAX / 1000);
}

static rps_status
client_open(struct bench_target *target, uint64_t port, struct rps_error *error)
{
    rps_cluster_options where = {.struct_bytes = sizeof(where)};
    rps_cluster_error refused = {.message = NULL};
    rps_client_options options;
    rps_cluster cluster;
    char *hosts =
            port == 0 ? NULL
                      : rps_format("127.0.0.1:%llu", (unsigned long long)port);
    rps_status status = RPS_OK;

    where.ps_hosts = hosts;
    where.task_optional = 1;
    status = rps_cluster_resolve(&cluster, &where, &refused);
    if (status != RPS_OK) {
        status = rps_fail(error, status, "%s", refused.message);
        rps_cluster_error_finish(&refused);
        free(hosts);
        return status;
    }
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.connect_timeout_ms = START_MS_MAX;
    status = rps_client_open(&target->client, &options);
    if (status != RPS_OK) {
        status = rps_fail(error, status, "%s", rps_client_error(NULL));
    }
    rps_cluster_finish(&cluster);
    free(hosts);
    return status;
}

static rps_status
rows_assign(struct bench_target *target, const struct bench_args *args,
        struct rps_error *error)
{
    uint64_t *keys = calloc(ASSIGN_ROWS, sizeof(*keys));
    float *rows = calloc((size_t)ASSIGN_ROWS * args->dim, sizeof(*rows));
    rps_status status = keys == NULL || rows == NULL ? RPS_E_NOMEM : RPS_OK;

    for (uint64_t at = 0; at < args->rows && status == RPS_OK;) {
        size_t n = 0;
        for (; n < ASSIGN_ROWS && at < args->rows; n++, at++) {
            keys[n] = bench_key(at);
            for (uint32_t j = 0; j < args->dim; j++) {
                rows[n * args->dim + j] = bench_value(keys[n], j);
            }
        }
        const rps_assign assign = {.table = target->table,
                .keys = keys,
                .key_count = n,
                .rows = rows};
        status = rps_assign_rows(target->client, &assign);
    }
    free(keys);
    free(rows);
    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "filling the table: %s",
                                      rps_client_error(target->client));
}

rps_status
bench_open(struct bench_target *target, const struct bench_args *args,
        struct rps_error *error)
{
    rps_table_spec spec;
    uint64_t port = 0;
    rps_status status = RPS_OK;

    *target = (struct bench_target){0};
    if (args->tcp) {
        status = server_start(target, args, error);
        if (status == RPS_OK) {
            status = server_port(target, &port, error);
        }
    }
    if (status == RPS_OK) {
        status = client_open(target, port, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_table_spec_init(&spec, "bench", args->dim, RPS_OPTIMIZER_SGD);
    status = rps_get_embedding_table(target->client, &spec, &target->table);
    return status == RPS_OK ? rows_assign(target, args, error)
                            : rps_fail(error, status, "%s",
                                      rps_client_error(target->client));
}

void
bench_close(struct bench_target *target)
{
    rps_client_close(target->client);
    if (target->server_pid > 0) {
        kill(target->server_pid, SIGTERM);
        waitpid(target->server_pid, NULL, 0);
    }
    if (target->port_file[0] != '\0') {
        unlink(target->port_file);
    }
    *target = (struct bench_target){0};
}
