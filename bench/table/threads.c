/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/threads.h"

#include "base/clock.h"
#include "bench/check.h"
#include "bench/model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/** Where threads wait until all of them are there. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    unsigned waiting; /* lock */
    enum {
        GATE_SHUT,
        GATE_OPEN,
        GATE_CANCELED /* not every thread could be started */
    } state;          /* lock */
};

struct runner {
    pthread_t thread;
    struct bench_fixture *fixture; /* set before start; read only */
    enum bench_work work;          /* set before start */
    struct bench_pool *pool;       /* this thread only */
    struct gate *gate;             /* set before start */
    double rate;
    uint64_t checked;
    rps_status status;
    struct rps_error error;
};

static void
gather(struct runner *runner, size_t at)
{
    const struct bench_fixture *fixture = runner->fixture;
    const struct bench_report *report = fixture->report;
    struct bench_pool *pool = runner->pool;

    bench_gather_lines(pool->line_at + at, pool->batch, report->index_distance,
            pool->out.sums);
    bench_gather_rows(pool->row_at + at, pool->batch, fixture->arrays.row_bytes,
            report->row_distance, pool->out.out);
}

static rps_status
work(struct runner *runner, size_t at)
{
    struct bench_fixture *fixture = runner->fixture;
    struct bench_pool *pool = runner->pool;
    const struct rps_read read = {
            .count = pool->batch, .keys = pool->keys + at};
    const struct bench_batch push = {.n = pool->batch,
            .keys = pool->keys + at,
            .gradients = pool->gradients};

    switch (runner->work) {
    case BENCH_WORK_GATHER:
        gather(runner, at);
        return RPS_OK;
    case BENCH_WORK_LOOKUP:
        rps_table_lookup(fixture->table, &read, pool->out.out,
                fixture->dim * sizeof(float));
        return RPS_OK;
    case BENCH_WORK_PUSH:
    default:
        pool->pushed++;
        return bench_batch_push(fixture->table, &push, &runner->error);
    }
}

/* Column 0 of each row. */
static rps_status
check_firsts(struct runner *runner, size_t at)
{
    const struct bench_pool *pool = runner->pool;
    const uint32_t dim = runner->fixture->dim;
    bool equal = true;

    for (size_t i = 0; i < pool->batch; i++) {
        equal &= pool->out.out[i * dim] == pool->firsts[at + i];
    }
    return equal ? RPS_OK
                 : rps_fail(&runner->error, RPS_E_CORRUPT,
                           "wrong answer: column 0 of a row while %s",
                           runner->work == BENCH_WORK_LOOKUP ? "looking up"
                                                             : "gathering");
}

/* The first stored value of each row, whatever its width. */
static rps_status
check_stored_firsts(struct runner *runner, size_t at)
{
    const struct bench_pool *pool = runner->pool;
    const size_t row_bytes = runner->fixture->arrays.row_bytes;
    const char *out = (const char *)pool->out.out;
    bool equal = true;

    for (size_t i = 0; i < pool->batch; i++) {
        equal &= memcmp(out + i * row_bytes, pool->row_at[at + i], 2) == 0;
    }
    return equal ? RPS_OK
                 : rps_fail(&runner->error, RPS_E_CORRUPT,
                           "wrong answer: column 0 of a bare gather");
}

static rps_status
check_some(struct runner *runner, size_t at)
{
    runner->checked += runner->pool->batch;
    if (runner->work == BENCH_WORK_PUSH) {
        return RPS_OK; /* every row, in the end */
    }
    return runner->work == BENCH_WORK_GATHER &&
                           runner->fixture->spec.value_dtype != RPS_VALUE_F32
                   ? check_stored_firsts(runner, at)
                   : check_firsts(runner, at);
}

static rps_status
check_last(struct runner *runner, size_t at)
{
    const struct bench_fixture *fixture = runner->fixture;
    const enum rps_value value = fixture->spec.value_dtype;
    struct bench_pool *pool = runner->pool;

    if (runner->work == BENCH_WORK_LOOKUP) {
        return bench_check_pattern(value, pool->keys + at, pool->batch,
                fixture->dim, pool->out.out, pool->out.wanted, &runner->error);
    }
    return runner->work == BENCH_WORK_PUSH
                   ? RPS_OK
                   : bench_check_stored(value, pool->keys + at, pool->batch,
                             fixture->dim, pool->out.out, pool->out.wanted,
                             "the bare gather", &runner->error);
}

static bool
gate_wait(struct gate *gate)
{
    bool open = false;

    pthread_mutex_lock(&gate->lock);
    gate->waiting++;
    pthread_cond_broadcast(&gate->opened);
    while (gate->state == GATE_SHUT) {
        pthread_cond_wait(&gate->opened, &gate->lock);
    }
    open = gate->state == GATE_OPEN;
    pthread_mutex_unlock(&gate->lock);
    return open;
}

/* Opens once `threads` wait; fewer were started: sends them home. */
static void
gate_open(struct gate *gate, unsigned started, unsigned threads)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->waiting < started) {
        pthread_cond_wait(&gate->opened, &gate->lock);
    }
    gate->state = started == threads ? GATE_OPEN : GATE_CANCELED;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->lock);
}

static void *
run(void *context)
{
    struct runner *runner = context;
    struct bench_pool *pool = runner->pool;
    const uint64_t ns_wanted = (uint64_t)(runner->fixture->args->seconds * 1e9);
    uint64_t batches = runner->work == BENCH_WORK_PUSH ? pool->pushed : 0;
    const uint64_t first = batches;
    uint64_t start = 0;
    uint64_t took = 0;
    size_t at = 0;

    if (!gate_wait(runner->gate)) {
        return NULL;
    }
    start = rps_clock_ns();
    while (runner->status == RPS_OK && took < ns_wanted) {
        at = (size_t)(batches % pool->batches) * pool->batch;
        runner->status = work(runner, at);
        if (runner->status == RPS_OK) {
            runner->status = check_some(runner, at);
        }
        batches++;
        took = rps_clock_ns() - start;
    }
    runner->rate =
            (double)((batches - first) * pool->batch) * 1e9 / (double)took;
    if (runner->status == RPS_OK) {
        runner->status = check_last(runner, at);
    }
    return NULL;
}

/* All of them, or none. */
static rps_status
run_all(struct runner *runners, unsigned threads)
{
    struct gate gate = {.state = GATE_SHUT};
    unsigned started = 0;

    pthread_mutex_init(&gate.lock, NULL);
    pthread_cond_init(&gate.opened, NULL);
    for (; started < threads; started++) {
        runners[started].gate = &gate;
        if (pthread_create(&runners[started].thread, NULL, run,
                    &runners[started]) != 0) {
            break;
        }
    }
    gate_open(&gate, started, threads);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(runners[i].thread, NULL);
    }
    pthread_cond_destroy(&gate.opened);
    pthread_mutex_destroy(&gate.lock);
    return started == threads ? RPS_OK : RPS_E_NOMEM;
}

rps_status
bench_threads_run(struct bench_fixture *fixture, enum bench_work work_kind,
        struct bench_pool *pools, unsigned threads, double *rate_out)
{
    struct runner *runners = calloc(threads, sizeof(*runners));
    rps_status status = runners == NULL ? RPS_E_NOMEM : RPS_OK;

    *rate_out = 0;
    for (unsigned i = 0; i < threads && status == RPS_OK; i++) {
        runners[i].fixture = fixture;
        runners[i].work = work_kind;
        runners[i].pool = &pools[i];
    }
    if (status == RPS_OK) {
        status = run_all(runners, threads);
    }
    for (unsigned i = 0; i < threads && status == RPS_OK; i++) {
        status = runners[i].status;
        *rate_out += runners[i].rate;
        fixture->report->checked_answers += (double)runners[i].checked;
        if (status != RPS_OK) {
            fixture->report->error = runners[i].error;
        }
    }
    free(runners);
    return status;
}
