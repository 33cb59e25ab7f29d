/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns which checkpoint is served: the thread that looks for a newer one,
 * what is passed over, when it is tried again. Leaves how tables get there to
 * embedding/checkpoint/follow.h.
 *
 * What is served changes under the requests in two ways: rows of a delta one
 * by one, and the store, or tables of it, under state_lock. A table and its
 * row are always of one checkpoint.
 */
#include "server/serving.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/spec.h"
#include "embedding/checkpoint/follow.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PASSED_MAX   256u
#define RETRY_MS     10000u   /* doubled each time */
#define RETRY_MS_MAX 3600000u /* an hour: damage may be a copy under way */
#define GONE_LOOKS   2u       /* a folder that is replaced is gone for one */

/** A checkpoint that could not be loaded. */
struct passed {
    uint64_t step;
    struct rps_digest digest;
    uint64_t again_ms; /* rps_clock_ms; tried again from then on */
    uint64_t wait_ms;
    char why[256]; /* told already */
};

struct rps_serving {
    struct rps_service *service; /* set at creation */
    char *dir;                   /* set at creation; owned */
    uint64_t poll_ms;            /* set at creation */
    pthread_t thread;
    bool running;

    /* the follower's only */
    struct rps_held held;
    bool holds;
    bool torn; /* an advance broke off: rows of two checkpoints */
    uint32_t gone_looks;
    struct passed passed[PASSED_MAX]; /* the oldest gives way */
    uint32_t passed_next;
    bool dir_told; /* that the folder cannot be read */

    pthread_mutex_t lock; /* guards: */
    pthread_cond_t woken;
    bool stop;
    struct rps_serving_figures figures;
    char failure[RPS_ERROR_BYTES]; /* the last; "": none since a load */
};

/* --- figures ---------------------------------------------------------------
 */

void
rps_serving_figures(
        struct rps_serving *serving, struct rps_serving_figures *out)
{
    pthread_mutex_lock(&serving->lock);
    *out = serving->figures;
    pthread_mutex_unlock(&serving->lock);
    if (out->holds) {
        const uint64_t now = rps_clock_unix_s();

        out->age_seconds =
                now > out->saved_unix_s ? now - out->saved_unix_s : 0;
    }
}

json_t *
rps_serving_describe(struct rps_serving *serving)
{
    struct rps_serving_figures figures;
    char why[RPS_ERROR_BYTES];

    rps_serving_figures(serving, &figures);
    pthread_mutex_lock(&serving->lock);
    memcpy(why, serving->failure, sizeof(why));
    pthread_mutex_unlock(&serving->lock);
    return json_pack("{s:s, s:b, s:I, s:I, s:s, s:I, s:I, s:I, s:s}", "dir",
            serving->dir, "holds", (int)figures.holds, "step",
            (json_int_t)figures.step, "epoch", (json_int_t)figures.epoch,
            "kind",
            !figures.holds     ? "none"
            : figures.is_delta ? "delta"
                               : "full",
            "age_seconds", (json_int_t)figures.age_seconds, "loads",
            (json_int_t)(figures.loads_full + figures.loads_delta),
            "load_failures", (json_int_t)figures.load_failures, "failure", why);
}

static void
note_loaded(struct rps_serving *serving, bool in_place, uint64_t saved_unix_s)
{
    struct rps_serving_figures *figures = &serving->figures;

    pthread_mutex_lock(&serving->lock);
    figures->holds = true;
    figures->step = serving->held.step;
    figures->epoch = serving->held.epoch;
    figures->is_delta = serving->held.is_delta;
    figures->saved_unix_s = saved_unix_s;
    figures->loads_full += !in_place;
    figures->loads_delta += in_place;
    serving->failure[0] = '\0';
    pthread_mutex_unlock(&serving->lock);
}

static void
note_failed(struct rps_serving *serving, const char *why)
{
    pthread_mutex_lock(&serving->lock);
    serving->figures.load_failures++;
    snprintf(serving->failure, sizeof(serving->failure), "%s", why);
    pthread_mutex_unlock(&serving->lock);
}

/* --- requests --------------------------------------------------------------
 */

rps_status
rps_serving_refuse(struct rps_request *request)
{
    const uint16_t opcode = request->message->header.opcode;

    return rps_fail(&request->error, RPS_E_READ_ONLY,
            "%s: this server serves the checkpoints of %s and changes nothing "
            "(recpsd --serve): writes go to the servers of the job that "
            "trains",
            rps_opcode_str(opcode), request->service->serving->dir);
}

rps_status
rps_serving_no_table(struct rps_request *request, const char *name)
{
    struct rps_serving *serving = request->service->serving;
    struct rps_serving_figures figures;

    rps_serving_figures(serving, &figures);
    return figures.holds
                   ? rps_fail(&request->error, RPS_E_NOT_FOUND,
                             "table %s: ckpt-%012" PRIu64
                             " of %s, which is served, has no such table",
                             name, figures.step, serving->dir)
                   : rps_fail(&request->error, RPS_E_RETRY_LATER,
                             "table %s: %s has no complete checkpoint yet",
                             name, serving->dir);
}

static rps_status
check_shape(const rps_table_spec *here, const rps_table_spec *asked,
        struct rps_error *error)
{
    if (strcmp(here->name, asked->name) != 0) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: its id is also that of table %s", asked->name,
                here->name);
    }
    if (here->dim != asked->dim) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: dim is %" PRIu32 " here and %" PRIu32
                " in the request",
                here->name, here->dim, asked->dim);
    }
    if (here->dense_elements != asked->dense_elements) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: dense_elements is %" PRIu64 " here and %" PRIu64
                " in the request",
                here->name, here->dense_elements, asked->dense_elements);
    }
    return RPS_OK;
}

/* The trainer's spec has an optimizer and a policy, which mean nothing here:
 * whoever asks for the shape of the rows gets them. */
rps_status
rps_serving_open_table(struct rps_request *request)
{
    struct rps_table *table;
    struct rps_table_stats stats;
    rps_table_spec spec;
    char id[24];
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    status = rps_spec_from_value(object, &spec, &request->error);
    json_decref(object);
    if (status != RPS_OK) {
        return status;
    }
    table = rps_store_find(request->service->store, rps_table_id(spec.name));
    if (table == NULL) {
        return rps_serving_no_table(request, spec.name);
    }
    status = check_shape(rps_table_spec_of(table), &spec, &request->error);
    if (status == RPS_OK) {
        rps_table_stats_of(table, &stats);
        snprintf(id, sizeof(id), "%016" PRIx64, rps_table_id_of(table));
        request->text = rps_json_text(json_pack(
                "{s:s, s:I}", "table_id", id, "rows", (json_int_t)stats.rows));
        status = request->text != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    return status;
}

/* --- one load --------------------------------------------------------------
 */

static bool
owns(void *context, uint64_t hash)
{
    const struct rps_service *service = context;

    return rps_route_owner(&service->route, hash) == service->options.ps_index;
}

static struct rps_follow
follow_of(struct rps_serving *serving)
{
    struct rps_service *service = serving->service;

    return (struct rps_follow){.dir = serving->dir,
            .part = service->options.ps_index,
            .parts = service->options.ps_count,
            .owns = owns,
            .context = service,
            .budget = &service->budget};
}

/* When it was saved; 0: it has gone meanwhile. */
static uint64_t
saved_at(const struct rps_serving *serving, uint64_t step)
{
    char *path = rps_checkpoint_path(serving->dir, step);
    char *manifest = NULL;
    struct stat stat_of = {0};
    uint64_t at = 0;

    if (path != NULL && asprintf(&manifest, "%s/manifest.json", path) >= 0 &&
            stat(manifest, &stat_of) == 0) {
        at = stat_of.st_mtime > 0 ? (uint64_t)stat_of.st_mtime : 1;
    }
    free(manifest);
    free(path);
    return at;
}

/* state_lock is held exclusively. */
static void
show_step(struct rps_serving *serving)
{
    struct rps_service *service = serving->service;

    rps_tables_set_step(service->store, serving->held.step);
    atomic_store(&service->step, serving->held.step);
}

/* The whole checkpoint beside what is served, then in its place. */
static rps_status
load_beside(struct rps_serving *serving, uint64_t step, struct rps_error *error)
{
    struct rps_service *service = serving->service;
    const struct rps_follow follow = follow_of(serving);
    struct rps_store *store = NULL;
    struct rps_held held;
    rps_status status = rps_service_new_store(service, &store, error);

    if (status != RPS_OK) {
        return status;
    }
    status = rps_checkpoint_serve(&follow, step, store, &held, error);
    if (status == RPS_OK && service->options.memory_limit > 0 &&
            rps_budget_left(&service->budget) == 0) {
        status = rps_fail(error, RPS_E_LIMIT,
                "ckpt-%012" PRIu64 ": with it tables take %" PRIu64
                " bytes, and the memory limit is %" PRIu64,
                step, rps_service_tables_bytes(service),
                service->options.memory_limit);
    }
    if (status == RPS_OK) {
        struct rps_store *old = service->store;

        pthread_rwlock_wrlock(&service->state_lock);
        service->store = store;
        serving->held = held;
        show_step(serving);
        pthread_rwlock_unlock(&service->state_lock);
        store = old;
        serving->torn = false;
    }
    rps_store_destroy(store);
    return status;
}

/* *done_out: it stands on what is held, and is served now. */
static rps_status
advance(struct rps_serving *serving, uint64_t step, bool *done_out,
        struct rps_error *error)
{
    struct rps_service *service = serving->service;
    const struct rps_follow follow = follow_of(serving);
    struct rps_advance *advance = NULL;
    rps_status status = rps_checkpoint_advance_begin(
            &follow, &serving->held, step, service->store, &advance, error);

    *done_out = false;
    if (advance == NULL) {
        return status;
    }
    pthread_rwlock_wrlock(&service->change_lock); /* the keeper waits */
    status = rps_checkpoint_advance_rows(advance, error);
    pthread_rwlock_unlock(&service->change_lock);
    if (status == RPS_OK) {
        pthread_rwlock_wrlock(&service->state_lock);
        status = rps_checkpoint_advance_swap(advance, &serving->held, error);
        if (status == RPS_OK) {
            show_step(serving);
        }
        pthread_rwlock_unlock(&service->state_lock);
    }
    rps_checkpoint_advance_end(advance);
    serving->torn = status != RPS_OK;
    *done_out = status == RPS_OK;
    if (serving->torn) {
        rps_service_event(service, RPS_LOG_ERROR, "serving_torn",
                "ckpt-%012" PRIu64
                " broke off: rows of two checkpoints are served until one is "
                "loaded whole: %s",
                step, error->text);
    }
    return status;
}

static rps_status
load(struct rps_serving *serving, uint64_t step, struct rps_error *error)
{
    const uint64_t start = rps_clock_ns();
    bool in_place = false;
    rps_status status = RPS_OK;

    if (serving->holds && !serving->torn) {
        status = advance(serving, step, &in_place, error);
    }
    if (!in_place && (status == RPS_OK || serving->torn)) {
        status = load_beside(serving, step, error);
    }
    if (status == RPS_OK) {
        serving->holds = true;
        note_loaded(serving, in_place, saved_at(serving, step));
        rps_service_event(serving->service, RPS_LOG_INFO, "serving",
                "step %" PRIu64 ": ckpt-%012" PRIu64 " of %s: %s, %" PRIu64
                " rows, %.3f s",
                step, step, serving->dir,
                in_place ? "deltas in place" : "loaded whole",
                serving->held.rows, (double)(rps_clock_ns() - start) / 1e9);
    }
    return status;
}

/* --- what is passed over ----------------------------------------------------
 */

static struct passed *
passed_of(struct rps_serving *serving, uint64_t step, struct rps_digest digest)
{
    for (uint32_t i = 0; i < PASSED_MAX; i++) {
        struct passed *at = &serving->passed[i];

        if (at->wait_ms > 0 && at->step == step &&
                rps_digest_equal(at->digest, digest)) {
            return at;
        }
    }
    return NULL;
}

/* Once, and again when the words are others. */
static void
pass_over(struct rps_serving *serving, uint64_t step, struct rps_digest digest,
        const char *why)
{
    struct passed *at = passed_of(serving, step, digest);
    const bool is_known =
            at != NULL && strncmp(at->why, why, sizeof(at->why) - 1) == 0;

    if (at == NULL) {
        at = &serving->passed[serving->passed_next++ % PASSED_MAX];
        *at = (struct passed){
                .step = step, .digest = digest, .wait_ms = RETRY_MS / 2};
    }
    at->wait_ms =
            at->wait_ms < RETRY_MS_MAX / 2 ? at->wait_ms * 2 : RETRY_MS_MAX;
    at->again_ms = rps_clock_ms() + at->wait_ms;
    snprintf(at->why, sizeof(at->why), "%s", why);
    if (is_known) {
        return;
    }
    note_failed(serving, why);
    if (serving->holds) {
        rps_service_event(serving->service, RPS_LOG_WARN,
                "checkpoint_passed_over",
                "ckpt-%012" PRIu64 " cannot be served, step %" PRIu64
                " goes on being: %s",
                step, serving->held.step, why);
    } else {
        rps_service_event(serving->service, RPS_LOG_WARN,
                "checkpoint_passed_over",
                "ckpt-%012" PRIu64 " cannot be served: %s", step, why);
    }
}

/* --- a look at the folder ----------------------------------------------------
 */

static bool
is_held(const struct rps_serving *serving,
        const struct rps_checkpoint_complete *entry)
{
    const struct rps_held *held = &serving->held;

    return serving->holds && entry->step == held->step &&
           entry->epoch == held->epoch &&
           (rps_digest_equal(entry->digest, held->digest) ||
                   (entry->is_folded &&
                           rps_digest_equal(entry->folded, held->digest)));
}

static void
count_gone(
        struct rps_serving *serving, const struct rps_checkpoint_survey *survey)
{
    bool there = !serving->holds;

    for (size_t i = 0; i < survey->count && !there; i++) {
        there = survey->complete[i].step == serving->held.step;
    }
    for (size_t i = 0; i < survey->unusable_count && !there; i++) {
        there = survey->unusable[i].step == serving->held.step;
    }
    serving->gone_looks = there ? 0 : serving->gone_looks + 1;
}

/* Back to an older one only where the job went back, or where somebody took
 * the one that is held away. */
static bool
is_wanted(const struct rps_serving *serving,
        const struct rps_checkpoint_complete *entry)
{
    const struct rps_held *held = &serving->held;

    return !serving->holds || serving->torn || entry->step >= held->step ||
           entry->epoch > held->epoch || serving->gone_looks >= GONE_LOOKS;
}

static void
tell_unusable(
        struct rps_serving *serving, const struct rps_checkpoint_survey *survey)
{
    for (size_t i = survey->unusable_count; i > 0; i--) {
        const struct rps_checkpoint_unusable *at = &survey->unusable[i - 1];

        if (!at->abandoned &&
                (!serving->holds || at->step > serving->held.step)) {
            pass_over(serving, at->step, (struct rps_digest){0}, at->why);
        }
    }
}

/* The folder is damaged, not the disk: an older one may be served. */
static bool
is_damage(rps_status status)
{
    return status == RPS_E_CORRUPT || status == RPS_E_NOT_FOUND;
}

/* A job that saves may have removed it while it was read. */
static rps_status
try_one(struct rps_serving *serving,
        const struct rps_checkpoint_complete *entry, struct rps_error *error)
{
    const struct passed *passed =
            passed_of(serving, entry->step, entry->digest);
    rps_status status;

    if (passed != NULL && rps_clock_ms() < passed->again_ms) {
        return rps_fail(error, RPS_E_CORRUPT, "%s", passed->why);
    }
    status = load(serving, entry->step, error);
    if (status != RPS_OK && saved_at(serving, entry->step) == 0) {
        rps_service_event(serving->service, RPS_LOG_INFO, "checkpoint_gone",
                "ckpt-%012" PRIu64 " was removed while it was read",
                entry->step);
        return RPS_E_NOT_FOUND;
    }
    if (status != RPS_OK) {
        pass_over(serving, entry->step, entry->digest, error->text);
    }
    return status;
}

/* Newest first. OK: nothing is better than what is held now. */
static rps_status
try_newest(struct rps_serving *serving,
        const struct rps_checkpoint_survey *survey, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = survey->count; i > 0; i--) {
        const struct rps_checkpoint_complete *entry = &survey->complete[i - 1];

        if (entry->abandoned) {
            continue;
        }
        if (!serving->torn &&
                (is_held(serving, entry) || !is_wanted(serving, entry))) {
            return RPS_OK;
        }
        status = try_one(serving, entry, error);
        if (!is_damage(status)) {
            return status;
        }
    }
    return status;
}

static rps_status
look(struct rps_serving *serving, struct rps_error *error)
{
    const struct rps_service_options *own = &serving->service->options;
    struct rps_checkpoint_survey survey = {0};
    rps_status status = rps_checkpoint_survey(
            serving->dir, own->ps_index, own->ps_count, &survey, error);

    if (status != RPS_OK) {
        if (!serving->dir_told) {
            rps_service_event(serving->service, RPS_LOG_WARN, "serving_folder",
                    "%s", error->text);
        }
        serving->dir_told = true;
        return status;
    }
    serving->dir_told = false;
    count_gone(serving, &survey);
    status = try_newest(serving, &survey, error);
    tell_unusable(serving, &survey);
    if (status == RPS_OK && !serving->holds && survey.unusable_count > 0) {
        status = rps_fail(error, RPS_E_CORRUPT, "%s",
                survey.unusable[survey.unusable_count - 1].why);
    }
    rps_checkpoint_survey_finish(&survey);
    return status;
}

/* --- the thread --------------------------------------------------------------
 */

/* False: it is the end. */
static bool
sleep_a_poll(struct rps_serving *serving)
{
    struct timespec until;
    bool go_on;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(serving->poll_ms / 1000);
    until.tv_nsec += (long)(serving->poll_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&serving->lock);
    if (!serving->stop) {
        (void)pthread_cond_timedwait(&serving->woken, &serving->lock, &until);
    }
    go_on = !serving->stop;
    pthread_mutex_unlock(&serving->lock);
    return go_on;
}

static void *
follower_main(void *context)
{
    struct rps_serving *serving = context;

    while (sleep_a_poll(serving)) {
        struct rps_error error = {.text = ""};

        (void)look(serving, &error); /* told where it was known */
    }
    return NULL;
}

rps_status
rps_serving_start(struct rps_serving *serving, struct rps_error *error)
{
    const rps_status status = look(serving, error);

    if (!serving->holds && status != RPS_OK) {
        return status;
    }
    if (!serving->holds) {
        rps_service_event(serving->service, RPS_LOG_INFO, "serving",
                "nothing yet: %s has no complete checkpoint", serving->dir);
    }
    if (pthread_create(&serving->thread, NULL, follower_main, serving) != 0) {
        return rps_fail(error, RPS_E_NOMEM, "cannot start a thread");
    }
    serving->running = true;
    return RPS_OK;
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

struct rps_serving *
rps_serving_create(
        struct rps_service *service, const char *dir, uint64_t poll_ms)
{
    struct rps_serving *serving = calloc(1, sizeof(*serving));

    if (serving == NULL) {
        return NULL;
    }
    serving->service = service;
    serving->poll_ms = poll_ms;
    serving->dir = strdup(dir);
    serving->figures.is_serving = true;
    if (serving->dir == NULL || !init_condition(&serving->woken)) {
        free(serving->dir);
        free(serving);
        return NULL;
    }
    pthread_mutex_init(&serving->lock, NULL);
    return serving;
}

void
rps_serving_destroy(struct rps_serving *serving)
{
    if (serving == NULL) {
        return;
    }
    if (serving->running) {
        pthread_mutex_lock(&serving->lock);
        serving->stop = true;
        pthread_cond_signal(&serving->woken);
        pthread_mutex_unlock(&serving->lock);
        pthread_join(serving->thread, NULL);
    }
    pthread_cond_destroy(&serving->woken);
    pthread_mutex_destroy(&serving->lock);
    free(serving->dir);
    free(serving);
}
