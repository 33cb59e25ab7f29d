/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns when tables are kept up: turns, the length of a slice, the thread,
 * its sleep. Leaves what a slice does to the engine, which reads no clock.
 */
#include "server/keeper.h"

#include "base/clock.h"
#include "server/save.h"

#include <stdlib.h>
#include <time.h>

#define LINES_START 256u

struct rps_keeper {
    struct rps_service *service; /* set before start */
    bool with_thread;            /* set before start */
    pthread_t thread;            /* set before start */

    pthread_mutex_t turn; /* guards: */
    size_t next;          /* table whose turn it is */
    size_t idle;          /* tables in a row that had nothing to do */
    size_t lines;         /* of the next slice */

    pthread_cond_t woken; /* with service->lock, which guards: */
    bool stop;
};

size_t
rps_keeper_lines(size_t lines, uint64_t ns, bool full)
{
    if (ns > RPS_SLICE_NS) { /* to three quarters of what fits */
        lines = (size_t)((uint64_t)lines * (RPS_SLICE_NS / 4 * 3) / ns);
    } else if (full && ns < RPS_SLICE_NS / 4) {
        lines *= 2;
    }
    if (lines < RPS_SLICE_LINES_MIN) {
        return RPS_SLICE_LINES_MIN;
    }
    return lines < RPS_SLICE_LINES_MAX ? lines : RPS_SLICE_LINES_MAX;
}

struct rps_now
rps_service_now(struct rps_service *service)
{
    return (struct rps_now){
            .step = atomic_load(&service->step), .unix_s = rps_clock_unix_s()};
}

void
rps_tables_set_step(struct rps_store *store, uint64_t step)
{
    const struct rps_now now = {.step = step, .unix_s = rps_clock_unix_s()};

    for (size_t i = 0; i < rps_store_count(store); i++) {
        rps_table_set_now(rps_store_at(store, i), now);
    }
}

/* A whole pass (EVICT) and a slice of one table take turns: a slice would
 * wait for the pass with state_lock in its hand. */
static bool
is_in_pass(struct rps_service *service, const struct rps_table *table)
{
    bool found;

    pthread_mutex_lock(&service->lock);
    found = service->evicting == table;
    pthread_mutex_unlock(&service->lock);
    return found;
}

/* state_lock and change_lock shared, turn held. True: there is more. */
static bool
keep_table(struct rps_keeper *keeper, struct rps_table *table)
{
    struct rps_service *service = keeper->service;
    struct rps_evict_report report = {0};
    uint64_t start;
    bool more;

    if (rps_table_spec_of(table)->dense_elements > 0 ||
            is_in_pass(service, table)) {
        return false;
    }
    start = rps_clock_ns();
    more = rps_table_maintain(
            table, rps_service_now(service), keeper->lines, &report);
    keeper->lines =
            rps_keeper_lines(keeper->lines, rps_clock_ns() - start, more);
    return more;
}

/* The same locks held. */
static bool
keep_next(struct rps_keeper *keeper)
{
    struct rps_store *store = keeper->service->store;
    const size_t count = rps_store_count(store);

    if (count == 0) {
        return false;
    }
    /* tables may have gone since */
    keeper->next = keeper->next < count ? keeper->next : 0;
    if (keep_table(keeper, rps_store_at(store, keeper->next))) {
        keeper->idle = 0;
    } else {
        keeper->idle++;
    }
    keeper->next++;
    if (keeper->idle >= count) {
        keeper->idle = 0;
        return false;
    }
    return true;
}

bool
rps_keeper_slice(struct rps_keeper *keeper)
{
    struct rps_service *service = keeper->service;
    bool more = false;

    if (pthread_mutex_trylock(&keeper->turn) != 0) {
        return false; /* somebody else is at it */
    }
    pthread_rwlock_rdlock(&service->state_lock);
    if (pthread_rwlock_tryrdlock(&service->change_lock) == 0) {
        more = keep_next(keeper);
        pthread_rwlock_unlock(&service->change_lock);
    }
    more = rps_save_make_ready(service) || more;
    pthread_rwlock_unlock(&service->state_lock);
    pthread_mutex_unlock(&keeper->turn);
    return more;
}

void
rps_keeper_help(struct rps_keeper *keeper)
{
    if (!keeper->with_thread) {
        (void)rps_keeper_slice(keeper);
    }
}

/* Sleep, or until the end. False: it is the end. */
static bool
sleep_us(struct rps_keeper *keeper, uint64_t us)
{
    pthread_mutex_t *lock = &keeper->service->lock;
    struct timespec until;
    bool go_on;

    clock_gettime(CLOCK_MONOTONIC, &until);
    us += (uint64_t)until.tv_nsec / 1000;
    until.tv_sec += (time_t)(us / 1000000);
    until.tv_nsec = (long)(us % 1000000) * 1000;
    pthread_mutex_lock(lock);
    if (!keeper->stop) {
        (void)pthread_cond_timedwait(&keeper->woken, lock, &until);
    }
    go_on = !keeper->stop; /* woken early for nothing: one slice too soon */
    pthread_mutex_unlock(lock);
    return go_on;
}

static void *
keeper_main(void *context)
{
    struct rps_keeper *keeper = context;
    uint64_t us = RPS_PAUSE_US;

    while (sleep_us(keeper, us)) {
        rps_save_tend(keeper->service);
        if (rps_keeper_slice(keeper)) {
            us = RPS_PAUSE_US;
        } else if (us < RPS_IDLE_MS_MAX * 1000) {
            us *= 2;
        }
    }
    return NULL;
}

static bool
init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    bool made;

    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

struct rps_keeper *
rps_keeper_create(struct rps_service *service, bool with_thread)
{
    struct rps_keeper *keeper = calloc(1, sizeof(*keeper));

    if (keeper == NULL) {
        return NULL;
    }
    keeper->service = service;
    keeper->with_thread = with_thread;
    keeper->lines = LINES_START;
    if (pthread_mutex_init(&keeper->turn, NULL) != 0) {
        free(keeper);
        return NULL;
    }
    if (!init_condition(&keeper->woken)) {
        pthread_mutex_destroy(&keeper->turn);
        free(keeper);
        return NULL;
    }
    if (with_thread &&
            pthread_create(&keeper->thread, NULL, keeper_main, keeper) != 0) {
        keeper->with_thread = false;
        rps_keeper_destroy(keeper);
        return NULL;
    }
    return keeper;
}

void
rps_keeper_destroy(struct rps_keeper *keeper)
{
    if (keeper == NULL) {
        return;
    }
    if (keeper->with_thread) {
        pthread_mutex_lock(&keeper->service->lock);
        keeper->stop = true;
        pthread_cond_signal(&keeper->woken);
        pthread_mutex_unlock(&keeper->service->lock);
        pthread_join(keeper->thread, NULL);
    }
    pthread_cond_destroy(&keeper->woken);
    pthread_mutex_destroy(&keeper->turn);
    free(keeper);
}
