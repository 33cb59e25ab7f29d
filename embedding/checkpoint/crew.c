/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/crew.h"

#include "base/spec.h"
#include "embedding/checkpoint/values.h"

#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static bool
make_batch(struct rps_ckpt_batch *batch, const rps_table_spec *spec,
        size_t capacity)
{
    const size_t slot_floats = rps_spec_slot_floats(spec);

    batch->value_bytes = rps_ckpt_value_bytes(spec);
    batch->keys = calloc(capacity, sizeof(*batch->keys));
    batch->hashes = calloc(capacity, sizeof(*batch->hashes));
    batch->meta = calloc(capacity, sizeof(*batch->meta));
    batch->values = calloc(capacity, batch->value_bytes);
    batch->slots = calloc(capacity * (slot_floats + 1), sizeof(float));
    return batch->keys != NULL && batch->hashes != NULL &&
           batch->meta != NULL && batch->values != NULL && batch->slots != NULL;
}

static void
finish_batch(struct rps_ckpt_batch *batch)
{
    free(batch->keys);
    free(batch->hashes);
    free(batch->meta);
    free(batch->values);
    free(batch->slots);
}

static void
work_on(struct rps_ckpt_crew *crew, uint64_t i)
{
    const struct rps_ckpt_scan *scan = crew->scan;
    struct rps_error error = {""};
    const rps_status status =
            scan->batch(scan->context, &crew->batches[i % crew->count], &error);

    pthread_mutex_lock(&crew->lock);
    if (status != RPS_OK && crew->status == RPS_OK) {
        crew->status = status;
        crew->error = error;
    }
    crew->busy[i % crew->count] = false;
    pthread_cond_signal(&crew->done); /* the reader alone waits */
    pthread_mutex_unlock(&crew->lock);
}

static void *
run(void *argument)
{
    struct rps_ckpt_crew *crew = argument;

    pthread_mutex_lock(&crew->lock);
    while (!crew->ending || crew->started < crew->given) {
        if (crew->started < crew->given) {
            const uint64_t i = crew->started++;

            pthread_mutex_unlock(&crew->lock);
            work_on(crew, i);
            pthread_mutex_lock(&crew->lock);
        } else {
            pthread_cond_wait(&crew->work, &crew->lock);
        }
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* Fewer than wanted will do; with none the reader does it all. */
static void
start_threads(struct rps_ckpt_crew *crew, uint32_t wanted)
{
    sigset_t all;
    sigset_t old;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    while (crew->thread_count < wanted &&
            pthread_create(
                    &crew->threads[crew->thread_count], NULL, run, crew) == 0) {
        crew->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

rps_status
rps_ckpt_crew_start(struct rps_ckpt_crew *crew,
        const struct rps_ckpt_scan *scan, size_t capacity,
        struct rps_error *error)
{
    const uint32_t workers = scan->table->rows > capacity ? scan->workers : 0;

    assert(scan->workers <= RPS_CKPT_WORKERS_MAX);
    memset(crew, 0, sizeof(*crew));
    crew->scan = scan;
    crew->count = workers == 0 ? 1 : workers + 2;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->done, NULL);
    for (uint32_t i = 0; i < crew->count; i++) {
        if (!make_batch(&crew->batches[i], &scan->table->spec, capacity)) {
            return rps_fail(error, RPS_E_NOMEM,
                    "%s: no memory to read table %s", scan->folder->path,
                    scan->table->spec.name);
        }
    }
    start_threads(crew, workers);
    return RPS_OK;
}

struct rps_ckpt_batch *
rps_ckpt_crew_take(struct rps_ckpt_crew *crew)
{
    const uint64_t place = crew->given % crew->count; /* only we raise it */
    bool failed;

    pthread_mutex_lock(&crew->lock);
    while (crew->busy[place]) {
        pthread_cond_wait(&crew->done, &crew->lock);
    }
    failed = crew->status != RPS_OK;
    pthread_mutex_unlock(&crew->lock);
    return failed ? NULL : &crew->batches[place];
}

void
rps_ckpt_crew_give(struct rps_ckpt_crew *crew)
{
    const uint64_t i = crew->given;

    pthread_mutex_lock(&crew->lock);
    crew->given++;
    crew->busy[i % crew->count] = true;
    if (crew->thread_count == 0) {
        crew->started++;
    } else {
        pthread_cond_signal(&crew->work);
    }
    pthread_mutex_unlock(&crew->lock);
    if (crew->thread_count == 0) {
        work_on(crew, i);
    }
}

rps_status
rps_ckpt_crew_end(struct rps_ckpt_crew *crew, struct rps_error *error)
{
    pthread_mutex_lock(&crew->lock);
    crew->ending = true;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->thread_count; i++) {
        pthread_join(crew->threads[i], NULL);
    }
    for (uint32_t i = 0; i < crew->count; i++) {
        finish_batch(&crew->batches[i]);
    }
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->work);
    pthread_mutex_destroy(&crew->lock);
    if (crew->status != RPS_OK && error != NULL) {
        *error = crew->error;
    }
    return crew->status;
}

uint32_t
rps_ckpt_crew_usual(void)
{
    cpu_set_t set;
    int count =
            sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    return count > (int)RPS_CKPT_WORKERS_MAX ? RPS_CKPT_WORKERS_MAX
                                             : (uint32_t)count;
}
