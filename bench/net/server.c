/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/server.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "bench/check.h"
#include "bench/net/tidy.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ASSIGN_BYTES_MAX (4u << 20)

/* recpsd stands beside this program, or in the build tree, or in PATH. */
static char *
server_path(void)
{
    static const char *const places[] = {"recpsd", "../server/daemon/recpsd"};
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < 2 && n > 0; i++) {
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

double
bench_process_cpu_seconds(pid_t pid)
{
    clockid_t clock = 0;
    struct timespec time = {0};

    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 ||
            clock_gettime(clock, &time) != 0) {
        return (double)NAN;
    }
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void
run_server(const char *path, const char *folder)
{
    char *port_file = rps_format("--port-file=%s/port", folder);
    char *unix_dir = rps_format("--unix-dir=%s", folder);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("TF_CONFIG");
    unsetenv("TF_CONFIG_FILE");
    if (port_file != NULL && unix_dir != NULL) {
        execlp(path, path, "--bind=127.0.0.1:0", "--admin=off",
                "--log-level=error", port_file, unix_dir, (char *)NULL);
    }
    fprintf(stderr, "recps-bench: cannot run %s: %s\n", path, strerror(errno));
    _exit(127);
}

/* The port that the server wrote once it listened. */
static rps_status
read_port(struct bench_server *server, struct rps_error *error)
{
    const uint64_t end_ms = rps_clock_ms() + BENCH_START_MS_MAX;
    char path[96];

    snprintf(path, sizeof(path), "%s/port", server->folder);
    while (rps_clock_ms() < end_ms) {
        char *text = NULL;
        size_t length = 0;
        uint64_t port = 0;
        bool read = false;
        if (rps_file_read(path, 64, &text, &length, NULL) == RPS_OK) {
            text[strcspn(text, "\n")] = '\0';
            read = rps_parse_u64(text, &port);
            free(text);
        }
        if (read) {
            snprintf(server->address, sizeof(server->address), "127.0.0.1:%llu",
                    (unsigned long long)port);
            return RPS_OK;
        }
        if (waitpid(server->pid, NULL, WNOHANG) != 0) {
            bench_child_forget(server->pid);
            server->pid = 0;
            return rps_fail(error, RPS_E_UNREACHABLE,
                    "recpsd ended before it listened");
        }
        usleep(5000);
    }
    return rps_fail(error, RPS_E_TIMEOUT, "recpsd did not listen within %u s",
            BENCH_START_MS_MAX / 1000);
}

rps_status
bench_server_start(struct bench_server *server,
        const struct bench_net_args *args, struct rps_error *error)
{
    char *path = NULL;
    rps_status status = RPS_OK;

    if (args->address != NULL) {
        snprintf(server->address, sizeof(server->address), "%s", args->address);
        return RPS_OK;
    }
    status = bench_folder_make(server->folder, error);
    if (status != RPS_OK) {
        return status;
    }
    path = server_path();
    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    server->pid = bench_child_start();
    if (server->pid == 0) {
        run_server(path, server->folder);
    }
    free(path);
    if (server->pid < 0) {
        server->pid = 0;
        return rps_fail(error, RPS_E_IO, "fork: %s", strerror(errno));
    }
    return read_port(server, error);
}

void
bench_server_stop(struct bench_server *server)
{
    bench_child_stop(server->pid);
    bench_folder_remove(server->folder);
    *server = (struct bench_server){0};
}

rps_status
bench_client_open(rps_client **client_out, const struct bench_server *server,
        enum rps_transport transport, struct rps_error *error)
{
    rps_cluster_options where = {.struct_bytes = sizeof(where)};
    rps_cluster_error refused = {.message = NULL};
    rps_client_options options;
    rps_cluster cluster;
    rps_status status = RPS_OK;

    where.ps_hosts = transport == RPS_TRANSPORT_LOCAL ? NULL : server->address;
    where.task_optional = 1;
    status = rps_cluster_resolve(&cluster, &where, &refused);
    if (status != RPS_OK) {
        status = rps_fail(error, status, "%s", refused.message);
        rps_cluster_error_finish(&refused);
        return status;
    }
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.connect_timeout_ms = BENCH_START_MS_MAX;
    options.transport = transport;
    options.unix_dir = server->folder[0] != '\0' ? server->folder : NULL;
    status = rps_client_open(client_out, &options);
    if (status != RPS_OK) {
        status = rps_fail(error, status, "%s", rps_client_error(NULL));
    }
    rps_cluster_finish(&cluster);
    return status;
}

rps_status
bench_fill_table(rps_client *client, rps_embedding_table *table,
        const struct bench_keyset *set, enum rps_value pattern,
        struct rps_error *error)
{
    const uint32_t dim = rps_embedding_table_spec(table)->dim;
    const size_t room = ASSIGN_BYTES_MAX / (dim * sizeof(float));
    uint64_t *keys = calloc(room, sizeof(*keys));
    float *rows = calloc(room * dim, sizeof(*rows));
    rps_status status = keys == NULL || rows == NULL ? RPS_E_NOMEM : RPS_OK;

    for (uint64_t at = 0; at < set->rows && status == RPS_OK;) {
        size_t n = 0;
        for (; n < room && at < set->rows; n++, at++) {
            keys[n] = bench_keyset_key(set, at);
            bench_pattern(pattern, keys[n], dim, rows + n * dim);
        }
        const rps_assign assign = {
                .table = table, .keys = keys, .key_count = n, .rows = rows};
        status = rps_assign_rows(client, &assign);
        if (status != RPS_OK) {
            rps_fail(error, status, "filling the table: %s",
                    rps_client_error(client));
        }
    }
    free(keys);
    free(rows);
    return status;
}
