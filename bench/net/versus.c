/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/versus.h"

#include "base/clock.h"
#include "bench/check.h"
#include "bench/net/server.h"
#include "bench/net/tidy.h"
#include "bench/print.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_IDS       (1u << 18)
#define FILL_ROWS      1000u
#define DEPTH_MOST     8u
#define EXIT_NOT_FOUND 127

struct bench_rival_lane {
    struct bench_rival *rival;
    const struct bench_rival_ops *ops;
    void *handle;
    struct bench_dist dist;
    size_t batches;
    uint64_t *keys;           /* [batches][batch] */
    uint32_t *rows;           /* [batch] scratch */
    char *answers;            /* [DEPTH_MOST][batch][row_bytes] */
    size_t asked[DEPTH_MOST]; /* batch of the pool, by place in flight */
    uint64_t starts[DEPTH_MOST];
    char *wanted; /* [row_bytes] */
    pthread_t thread;
    uint64_t deadline_ns;
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t taken;
    struct bench_series micros;
    rps_status status;
    struct rps_error error;
};

const char *
bench_versus_str(enum bench_versus kind)
{
    return kind == BENCH_REDIS ? "redis" : "memcached";
}

static const struct bench_rival_ops *
ops_of(enum bench_versus kind)
{
    return kind == BENCH_REDIS ? bench_redis_ops() : bench_memcached_ops();
}

/* --- start --------------------------------------------------------------- */

/* A port that was free a moment ago. */
static uint16_t
free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port = 0;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
            getsockname(fd, (struct sockaddr *)&at, &bytes) == 0) {
        port = ntohs(at.sin_port);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return port;
}

/* stdout is for the JSON alone. */
static void
run_child(const struct bench_rival *rival, const struct bench_rival_ops *ops)
{
    const int null_fd = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(null_fd, STDOUT_FILENO);
    (void)dup2(null_fd, STDERR_FILENO);
    ops->exec(rival);
    _exit(EXIT_NOT_FOUND);
}

static rps_status
start_server(struct bench_rival *rival, const struct bench_rival_ops *ops,
        void **handle_out, struct rps_error *error)
{
    const uint64_t end_ms = rps_clock_ms() + BENCH_START_MS_MAX;
    const char *name = bench_versus_str(rival->kind);
    int code = 0;
    rps_status status = bench_folder_make(rival->folder, error);

    if (status != RPS_OK) {
        return status;
    }
    snprintf(rival->path, sizeof(rival->path), "%s/%s.sock", rival->folder,
            name);
    rival->port = rival->is_unix ? 0 : free_port();
    rival->pid = bench_child_start();
    if (rival->pid == 0) {
        run_child(rival, ops);
    }
    if (rival->pid < 0) {
        rival->pid = 0;
        return rps_fail(error, RPS_E_IO, "fork: %s", strerror(errno));
    }
    while (rps_clock_ms() < end_ms) {
        if (waitpid(rival->pid, &code, WNOHANG) != 0) {
            bench_child_forget(rival->pid);
            rival->pid = 0;
            return WIFEXITED(code) && WEXITSTATUS(code) == EXIT_NOT_FOUND
                           ? rps_fail(error, RPS_E_NOT_FOUND,
                                     "%s is not installed", name)
                           : rps_fail(error, RPS_E_UNREACHABLE,
                                     "%s ended before it listened", name);
        }
        *handle_out = ops->open(rival);
        if (*handle_out != NULL) {
            return RPS_OK;
        }
        usleep(10000);
    }
    return rps_fail(error, RPS_E_TIMEOUT, "%s did not listen within %u s", name,
            BENCH_START_MS_MAX / 1000);
}

static rps_status
fill(struct bench_rival *rival, struct rps_error *error)
{
    const struct bench_rival_lane *lane = &rival->lanes[0];
    uint64_t *keys = calloc(FILL_ROWS, sizeof(*keys));
    char *rows = calloc(FILL_ROWS, rival->row_bytes);
    rps_status status = keys == NULL || rows == NULL ? RPS_E_NOMEM : RPS_OK;

    bench_progress("filling %s", bench_versus_str(rival->kind));
    for (uint64_t at = 0; at < rival->set->rows && status == RPS_OK;) {
        size_t n = 0;
        for (; n < FILL_ROWS && at < rival->set->rows; n++, at++) {
            keys[n] = bench_keyset_key(rival->set, at);
            bench_pattern_stored(rival->args->value, keys[n], rival->args->dim,
                    rows + n * rival->row_bytes);
        }
        status = lane->ops->fill(
                lane->handle, keys, rows, n, rival->row_bytes, error);
    }
    free(keys);
    free(rows);
    return status;
}

static rps_status
init_lane(
        struct bench_rival_lane *lane, unsigned index, struct rps_error *error)
{
    struct bench_rival *rival = lane->rival;
    const struct bench_net_args *args = rival->args;

    lane->batches = POOL_IDS / args->connections / args->batch;
    lane->batches = lane->batches > DEPTH_MOST ? lane->batches : DEPTH_MOST;
    lane->keys = calloc(lane->batches * args->batch, sizeof(*lane->keys));
    lane->rows = calloc(args->batch, sizeof(*lane->rows));
    lane->answers = calloc(DEPTH_MOST * args->batch, rival->row_bytes);
    lane->wanted = malloc(rival->row_bytes);
    if (lane->keys == NULL || lane->rows == NULL || lane->answers == NULL ||
            lane->wanted == NULL ||
            !bench_dist_init(&lane->dist, &args->dist, rival->set,
                    args->seed + index, args->batch)) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    if (lane->handle == NULL) {
        lane->handle = lane->ops->open(rival);
    }
    return lane->handle != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_UNREACHABLE, "%s: cannot connect",
                             bench_versus_str(rival->kind));
}

rps_status
bench_rival_init(struct bench_rival *rival, struct rps_error *error)
{
    const struct bench_net_args *args = rival->args;
    const struct bench_rival_ops *ops = ops_of(rival->kind);
    void *handle = NULL;
    rps_status status = RPS_OK;

    if (ops == NULL) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "built without the client of %s",
                bench_versus_str(rival->kind));
    }
    rival->row_bytes = args->dim * bench_value_bytes(args->value);
    rival->is_unix = args->transport != RPS_TRANSPORT_TCP;
    rival->depth = 1;
    status = start_server(rival, ops, &handle, error);
    if (status != RPS_OK) {
        return status;
    }
    rival->lanes = calloc(args->connections, sizeof(*rival->lanes));
    if (rival->lanes == NULL) {
        ops->close(handle);
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    rival->lanes[0].handle = handle;
    for (unsigned i = 0; i < args->connections && status == RPS_OK; i++) {
        rival->lanes[i].rival = rival;
        rival->lanes[i].ops = ops;
        rival->lane_count = i + 1;
        status = init_lane(&rival->lanes[i], i, error);
    }
    return status == RPS_OK ? fill(rival, error) : status;
}

void
bench_rival_finish(struct bench_rival *rival)
{
    for (unsigned i = 0; i < rival->lane_count; i++) {
        struct bench_rival_lane *lane = &rival->lanes[i];
        if (lane->handle != NULL) {
            lane->ops->close(lane->handle);
        }
        bench_dist_finish(&lane->dist);
        bench_series_finish(&lane->micros);
        free(lane->keys);
        free(lane->rows);
        free(lane->answers);
        free(lane->wanted);
    }
    free(rival->lanes);
    bench_child_stop(rival->pid);
    bench_folder_remove(rival->folder);
    *rival = (struct bench_rival){0};
}

/* --- slices -------------------------------------------------------------- */

static void
draw(struct bench_rival_lane *lane)
{
    const struct bench_rival *rival = lane->rival;
    const size_t batch = rival->args->batch;

    for (size_t at = 0; at < lane->batches; at++) {
        bench_dist_draw(&lane->dist, batch, false, lane->rows);
        for (size_t i = 0; i < batch; i++) {
            lane->keys[at * batch + i] =
                    bench_keyset_key(rival->set, lane->rows[i]);
        }
    }
}

static void
ask(struct bench_rival_lane *lane, uint64_t number)
{
    const size_t batch = lane->rival->args->batch;
    const size_t place = number % lane->rival->depth;

    lane->asked[place] = number % lane->batches;
    lane->starts[place] = rps_clock_ns();
    lane->status = lane->ops->ask(lane->handle,
            lane->keys + lane->asked[place] * batch, batch, &lane->error);
}

static void
take(struct bench_rival_lane *lane)
{
    const struct bench_rival *rival = lane->rival;
    const size_t batch = rival->args->batch;
    const size_t place = lane->taken % rival->depth;

    lane->status = lane->ops->take(lane->handle, batch, rival->row_bytes,
            lane->answers + place * batch * rival->row_bytes, &lane->error);
    lane->last_ns = rps_clock_ns();
    lane->taken++;
    bench_series_add(
            &lane->micros, (double)(lane->last_ns - lane->starts[place]) / 1e3);
}

static void *
run_lane(void *context)
{
    struct bench_rival_lane *lane = context;
    const size_t depth = lane->rival->depth;
    uint64_t asked = 0;

    lane->taken = 0;
    lane->micros.count = 0;
    lane->first_ns = rps_clock_ns();
    do {
        while (lane->status == RPS_OK && asked < lane->taken + depth) {
            ask(lane, asked++);
        }
        if (lane->status == RPS_OK) {
            take(lane);
        }
    } while (lane->status == RPS_OK && lane->last_ns < lane->deadline_ns);
    while (lane->status == RPS_OK && lane->taken < asked) {
        take(lane);
    }
    return NULL;
}

/* The last answers of a lane, in full. */
static rps_status
check(struct bench_rival_lane *lane, struct rps_error *error)
{
    struct bench_rival *rival = lane->rival;
    const size_t batch = rival->args->batch;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < rival->depth && i < lane->taken && status == RPS_OK;
            i++) {
        status = bench_check_stored(rival->args->value,
                lane->keys + lane->asked[i] * batch, batch, rival->args->dim,
                lane->answers + i * batch * rival->row_bytes, lane->wanted,
                bench_versus_str(rival->kind), error);
        rival->checked += batch;
    }
    return status;
}

static rps_status
gather(struct bench_rival *rival, struct bench_slice *slice,
        struct rps_error *error)
{
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    rps_status status = RPS_OK;

    for (unsigned i = 0; i < rival->lane_count && status == RPS_OK; i++) {
        struct bench_rival_lane *lane = &rival->lanes[i];
        if (lane->status != RPS_OK) {
            *error = lane->error;
            return lane->status;
        }
        first = lane->first_ns < first ? lane->first_ns : first;
        last = lane->last_ns > last ? lane->last_ns : last;
        slice->requests += lane->taken;
        for (size_t j = 0; j < lane->micros.count; j++) {
            bench_series_add(&slice->micros, lane->micros.values[j]);
        }
        status = check(lane, error);
    }
    slice->seconds = (double)(last - first) / 1e9;
    slice->ids = slice->requests * rival->args->batch;
    slice->server_cpu_seconds = (double)NAN;
    return status;
}

rps_status
bench_rival_run(void *context, double seconds, struct bench_slice *slice,
        struct rps_error *error)
{
    struct bench_rival *rival = context;
    unsigned started = 0;

    for (unsigned i = 0; i < rival->lane_count; i++) {
        draw(&rival->lanes[i]);
    }
    const uint64_t deadline = rps_clock_ns() + (uint64_t)(seconds * 1e9);
    for (; started < rival->lane_count; started++) {
        struct bench_rival_lane *lane = &rival->lanes[started];
        lane->deadline_ns = deadline;
        if (pthread_create(&lane->thread, NULL, run_lane, lane) != 0) {
            break;
        }
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(rival->lanes[i].thread, NULL);
    }
    return started == rival->lane_count
                   ? gather(rival, slice, error)
                   : rps_fail(error, RPS_E_NOMEM, "no thread for connection %u",
                             started);
}

rps_status
bench_rival_choose(
        struct bench_rival *rival, double seconds, struct rps_error *error)
{
    double best_rate = 0;
    size_t best = 1;
    rps_status status = RPS_OK;

    for (size_t depth = 1; depth <= DEPTH_MOST && status == RPS_OK;
            depth *= 2) {
        struct bench_slice slice = {.seconds = 0};
        rival->depth = depth;
        status = bench_rival_run(rival, seconds, &slice, error);
        if (status == RPS_OK && (double)slice.ids / slice.seconds > best_rate) {
            best_rate = (double)slice.ids / slice.seconds;
            best = depth;
        }
        bench_slice_finish(&slice);
    }
    rival->depth = best;
    return status;
}
