/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the one save in hand: when its cut is taken, whose it is, and that it
 * ends. Leaves the requests and the files to save.c.
 *
 * `lock` guards service->save; but while save.writing is set its cut belongs
 * to the writer's thread, which nobody else frees it under.
 */
#include "base/clock.h"
#include "base/log.h"
#include "embedding/checkpoint/chain.h"
#include "server/save.h"
#include "server/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
rps_record_busy(struct rps_service *service, enum rps_busy busy)
{
    rps_record_put(&service->saving.busy_since_ms, rps_clock_ms());
    /* relaxed: see rps_saving_record */
    atomic_store_explicit(&service->saving.busy, busy, memory_order_relaxed);
}

static bool
is_connected_locked(const struct rps_service *service, uint64_t client)
{
    const struct rps_session *at = service->sessions;

    while (at != NULL && at->client != client) {
        at = at->next;
    }
    return at != NULL;
}

/* Who may still end it: its client, or of a decision's the chief. */
static bool
has_owner_locked(const struct rps_service *service)
{
    return service->save.claimed
                   ? is_connected_locked(service, service->save.client)
                   : rps_chief_connected_locked(service);
}

bool
rps_save_is_others_locked(const struct rps_service *service, uint64_t client)
{
    const struct rps_save *save = &service->save;

    return save->phase != RPS_SAVE_NONE && save->claimed &&
           save->client != client &&
           (save->writing || has_owner_locked(service));
}

bool
rps_save_claim_locked(
        struct rps_service *service, uint64_t client, uint64_t step)
{
    struct rps_save *save = &service->save;

    if (save->phase == RPS_SAVE_NONE || save->step != step ||
            save->epoch != atomic_load(&service->epoch) || save->abandoned ||
            (save->claimed && save->client != client)) {
        return false;
    }
    save->claimed = true;
    save->client = client;
    save->alone_ms = 0;
    return true;
}

/* What it was about goes on as counters. lock is held. */
static void
take_out_locked(struct rps_service *service, struct rps_save *out)
{
    struct rps_save_figures figures;
    struct rps_saving_record *saving = &service->saving;

    rps_save_figures_locked(service, &figures);
    /* relaxed: see rps_saving_record */
    atomic_fetch_add_explicit(
            &saving->copied, figures.rows, memory_order_relaxed);
    atomic_fetch_add_explicit(
            &saving->waits, figures.waits, memory_order_relaxed);
    if (figures.peak >
            atomic_load_explicit(&saving->buffer_peak, memory_order_relaxed)) {
        rps_record_put(&saving->buffer_peak, figures.peak);
    }
    *out = service->save;
    memset(&service->save, 0, sizeof(service->save));
}

/* Its changes are unsaved again, or saved. lock is held. */
static void
count_changes_locked(struct rps_service *service, bool complete)
{
    for (size_t i = 0; i < service->change_count; i++) {
        struct rps_changes *changes = &service->changes[i];

        if (complete) {
            changes->updates -= changes->prepared;
        }
        changes->prepared = 0;
    }
}

static void
free_save(struct rps_save *save, bool complete)
{
    if (save->cut != NULL && complete) {
        rps_cut_commit(save->cut);
    } else if (save->cut != NULL) {
        rps_cut_abort(save->cut);
    }
    free(save->lanes);
    free(save->part);
}

void
rps_save_finish(struct rps_service *service, bool complete)
{
    struct rps_save save;

    pthread_mutex_lock(&service->lock);
    count_changes_locked(service, complete);
    take_out_locked(service, &save);
    pthread_mutex_unlock(&service->lock);
    free_save(&save, complete);
}

bool
rps_save_drop(struct rps_service *service, const char *why)
{
    struct rps_save save = {.phase = RPS_SAVE_NONE};
    bool writing;

    pthread_mutex_lock(&service->lock);
    writing = service->save.writing;
    if (!writing && service->save.phase != RPS_SAVE_NONE) {
        count_changes_locked(service, false);
        take_out_locked(service, &save);
    }
    pthread_mutex_unlock(&service->lock);
    if (save.phase != RPS_SAVE_NONE) {
        rps_save_note_failure(service, save.step, save.number, why);
        free_save(&save, false);
    }
    return !writing;
}

void
rps_save_note_failure(struct rps_service *service, uint64_t step, uint64_t cut,
        const char *why)
{
    struct rps_log_about about = {.step = step};
    char *copy = strdup(why);

    rps_log_enter(&about);
    rps_service_event(service, RPS_LOG_WARN, "checkpoint_failed",
            "ckpt-%012" PRIu64 " is not saved: %s", step, why);
    rps_log_leave(&about);
    if (cut == 0) { /* relaxed: see rps_saving_record */
        cut = atomic_load_explicit(
                      &service->saving.cuts, memory_order_relaxed) +
              1;
    }
    rps_record_count(&service->saving.save_failures);
    pthread_mutex_lock(&service->lock);
    free(service->failed_why);
    service->failed_why = copy; /* NULL: there is no memory for words */
    service->failed_step = step;
    service->failed_cut = cut;
    pthread_mutex_unlock(&service->lock);
}

/* May the next cut be taken? What may be dropped is. On the writer's thread
 * no EVICT runs. */
static rps_status
make_way(struct rps_service *service, struct rps_error *error)
{
    const void *evicting;

    pthread_mutex_lock(&service->lock);
    evicting = service->evicting;
    pthread_mutex_unlock(&service->lock);
    if (evicting != NULL) { /* its pass changes rows without a lock of ours */
        return rps_fail(error, RPS_E_RETRY_LATER,
                "SAVE: an EVICT runs here: try again when it is done");
    }
    return rps_save_drop(service, "another one took its place")
                   ? RPS_OK
                   : rps_fail(error, RPS_E_RETRY_LATER,
                             "SAVE: another save is in progress here");
}

static uint64_t
buffer_bytes(const struct rps_service *service)
{
    const uint64_t bytes = service->options.save_buffer;

    return bytes != 0 ? bytes : RPS_SAVE_BUFFER_BYTES;
}

bool
rps_save_make_ready(struct rps_service *service)
{
    return service->options.checkpoint_dir != NULL &&
           rps_cut_make_ready(service->store, buffer_bytes(service));
}

static rps_status
fill(struct rps_service *service, struct rps_save *save,
        struct rps_error *error)
{
    rps_status status =
            rps_lanes_record(service->lanes, &save->lanes, &save->lane_count);

    if (status != RPS_OK) {
        return rps_fail(error, status, "SAVE: no memory for the lanes");
    }
    return rps_cut_take(service->store, rps_service_now(service),
            buffer_bytes(service), &save->cut, error);
}

rps_status
rps_save_take(struct rps_service *service, uint64_t step,
        uint64_t pause_from_ns, struct rps_error *error)
{
    struct rps_saving_record *saving = &service->saving;
    struct rps_save save = {.phase = RPS_SAVE_CUT,
            .step = step,
            .epoch = atomic_load(&service->epoch)};
    rps_status status = make_way(service, error);

    if (status == RPS_OK) {
        status = fill(service, &save, error);
    }
    if (status != RPS_OK) {
        free_save(&save, false);
        return status;
    }
    save.taken_ns = rps_clock_ns();
    save.pause_ns = save.taken_ns - pause_from_ns;
    rps_record_put(&saving->pause_ns, save.pause_ns);
    pthread_mutex_lock(&service->lock);
    rps_record_count(&saving->cuts);
    /* relaxed: only counted up here, under lock */
    save.number = atomic_load_explicit(&saving->cuts, memory_order_relaxed);
    save.parent = service->parent;
    for (size_t i = 0; i < service->change_count; i++) {
        service->changes[i].prepared = service->changes[i].updates;
    }
    service->save = save;
    pthread_mutex_unlock(&service->lock);
    return RPS_OK;
}

void
rps_save_at_decision(
        struct rps_service *service, const struct rps_wire_decision *decision)
{
    struct rps_error error = {.text = ""};
    bool chief;

    if ((decision->wishes & RPS_WISH_SAVE) == 0 ||
            decision->save_step != decision->step ||
            service->options.checkpoint_dir == NULL) {
        return;
    }
    pthread_mutex_lock(&service->lock);
    chief = rps_chief_connected_locked(service);
    pthread_mutex_unlock(&service->lock);
    /* What cannot be taken now is asked for again by SAVE: no step is applied
     * before the chief ends one. */
    if (chief && rps_save_take(service, decision->step, rps_clock_ns(),
                         &error) != RPS_OK) {
        rps_service_event(service, RPS_LOG_WARN, "cut_not_taken",
                "step %" PRIu64 ": %s", decision->step, error.text);
    }
}

rps_status
rps_save_check_table(struct rps_service *service, const struct rps_table *table,
        struct rps_error *error)
{
    bool found;

    pthread_mutex_lock(&service->lock);
    found = service->save.cut != NULL && rps_table_is_cut(table);
    pthread_mutex_unlock(&service->lock);
    return found ? rps_fail(error, RPS_E_RETRY_LATER,
                           "a checkpoint of table %s is being written: try "
                           "again when it is done",
                           rps_table_spec_of(table)->name)
                 : RPS_OK;
}

/* On the writer's thread, so that its files can go, too. */
static rps_status
run_abandon(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    struct rps_checkpoint_id id = {.dir = service->options.checkpoint_dir,
            .part = service->options.ps_index,
            .parts = service->options.ps_count};
    bool abandoned;

    pthread_rwlock_rdlock(&service->state_lock);
    pthread_mutex_lock(&service->lock);
    abandoned = service->save.abandoned;
    id.step = service->save.step;
    id.epoch = service->save.epoch;
    pthread_mutex_unlock(&service->lock);
    if (abandoned) {
        (void)rps_save_drop(service, "who began it is gone");
    }
    pthread_rwlock_unlock(&service->state_lock);
    if (abandoned && id.dir != NULL) {
        rps_checkpoint_abort(&id);
    }
    return RPS_OK;
}

void
rps_save_tend(struct rps_service *service)
{
    static const struct rps_task task = {.run = run_abandon};
    const uint64_t now = rps_clock_ms();
    struct rps_save *save = &service->save;
    bool over = false;

    pthread_mutex_lock(&service->lock);
    if (save->phase != RPS_SAVE_NONE && !save->writing && !save->abandoned) {
        if (has_owner_locked(service)) {
            save->alone_ms = 0;
        } else if (save->alone_ms == 0) {
            save->alone_ms = now;
        }
        over = save->alone_ms != 0 &&
               now >= save->alone_ms + service->options.step_timeout_ms;
        save->abandoned = over;
    }
    pthread_mutex_unlock(&service->lock);
    if (over && !rps_writer_post(service->writer, &task)) {
        pthread_mutex_lock(&service->lock);
        save->abandoned = false; /* no memory: next time */
        pthread_mutex_unlock(&service->lock);
    }
}

/* Deltas behind its full one, itself too; false: not known, so that the next
 * save is full. */
static bool
count_chain(const char *dir, uint64_t step, uint32_t *count_out)
{
    struct rps_ckpt_chain *chain = calloc(1, sizeof(*chain));
    bool known;

    if (chain == NULL || dir == NULL) {
        free(chain);
        return false;
    }
    known = rps_ckpt_chain_open(chain, dir, step, NULL) == RPS_OK;
    if (known) {
        *count_out = chain->count - 1;
        rps_ckpt_chain_close(chain);
    }
    free(chain);
    return known;
}

static void
name_parent(struct rps_save_parent *parent, const json_t *manifest)
{
    const char *digest = json_string_value(json_object_get(manifest, "digest"));
    const json_int_t step =
            json_integer_value(json_object_get(manifest, "step"));

    *parent = (struct rps_save_parent){.name = ""};
    if (digest != NULL && strlen(digest) == 32 && step >= 0) {
        snprintf(parent->name, sizeof(parent->name), "ckpt-%012" PRIu64,
                (uint64_t)step % 1000000000000u);
        memcpy(parent->digest, digest, sizeof(parent->digest));
    }
}

void
rps_save_read_parent(struct rps_service *service, uint64_t step,
        const json_t *manifest, struct rps_save_parent *out)
{
    name_parent(out, manifest);
    if (!count_chain(service->options.checkpoint_dir, step, &out->chain)) {
        *out = (struct rps_save_parent){.name = ""};
    }
}

void
rps_save_stand_on(
        struct rps_service *service, const struct rps_save_parent *parent)
{
    pthread_mutex_lock(&service->lock);
    service->parent = *parent;
    pthread_mutex_unlock(&service->lock);
}

void
rps_save_stand_on_saved(struct rps_service *service,
        const struct rps_save *save, const json_t *manifest)
{
    struct rps_save_parent parent;

    name_parent(&parent, manifest);
    parent.chain = save->delta ? save->parent.chain + 1 : 0;
    rps_save_stand_on(service, &parent);
}

void
rps_save_figures_locked(
        struct rps_service *service, struct rps_save_figures *out)
{
    memset(out, 0, sizeof(*out));
    if (service->save.cut != NULL) {
        rps_cut_figures(service->save.cut, out);
    }
}

static json_t *
describe_last(const struct rps_saving_record *saving, uint64_t step)
{
    /* relaxed: see rps_saving_record */
    const memory_order order = memory_order_relaxed;

    if (atomic_load_explicit(&saving->saves, order) == 0) {
        return json_null();
    }
    return json_pack("{s:I, s:s, s:I, s:I, s:I}", "step", (json_int_t)step,
            "kind",
            atomic_load_explicit(&saving->save_delta, order) != 0 ? "delta"
                                                                  : "full",
            "bytes",
            (json_int_t)atomic_load_explicit(&saving->save_bytes, order), "us",
            (json_int_t)(atomic_load_explicit(&saving->save_ns, order) / 1000),
            "unix_seconds",
            (json_int_t)atomic_load_explicit(&saving->saved_unix_s, order));
}

static json_t *
describe_failed(const struct rps_service *service)
{
    return service->failed_why == NULL
                   ? json_null()
                   : json_pack("{s:I, s:I, s:s}", "step",
                             (json_int_t)service->failed_step, "cut",
                             (json_int_t)service->failed_cut, "why",
                             service->failed_why);
}

static const char *
phase_str(const struct rps_save *save)
{
    if (save->phase == RPS_SAVE_NONE) {
        return "none";
    }
    if (save->writing) {
        return save->phase == RPS_SAVE_CUT ? "writing" : "committing";
    }
    return save->phase == RPS_SAVE_CUT ? "cut" : "prepared";
}

json_t *
rps_save_describe_locked(struct rps_service *service)
{
    const struct rps_save *save = &service->save;
    const struct rps_saving_record *saving = &service->saving;
    /* relaxed: see rps_saving_record */
    const memory_order order = memory_order_relaxed;
    struct rps_save_figures figures;

    rps_save_figures_locked(service, &figures);
    return json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
            " s:o, s:o}",
            "phase", phase_str(save), "step", (json_int_t)save->step, "cuts",
            (json_int_t)atomic_load_explicit(&saving->cuts, order), "saved_cut",
            (json_int_t)atomic_load_explicit(&saving->saved_cut, order),
            "saves", (json_int_t)atomic_load_explicit(&saving->saves, order),
            "failures",
            (json_int_t)atomic_load_explicit(&saving->save_failures, order),
            "pause_us",
            (json_int_t)(atomic_load_explicit(&saving->pause_ns, order) / 1000),
            "barrier_us",
            (json_int_t)(atomic_load_explicit(&saving->barrier_ns, order) /
                         1000),
            "buffer_bytes", (json_int_t)figures.used, "buffer_peak_bytes",
            (json_int_t)figures.peak, "buffer_limit_bytes",
            (json_int_t)(service->options.save_buffer != 0
                                 ? service->options.save_buffer
                                 : RPS_SAVE_BUFFER_BYTES),
            "copied_rows",
            (json_int_t)(atomic_load_explicit(&saving->copied, order) +
                         figures.rows),
            "waits",
            (json_int_t)(atomic_load_explicit(&saving->waits, order) +
                         figures.waits),
            "last", describe_last(saving, service->saved_step), "failed",
            describe_failed(service));
}
