/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what a decision does to the tables of this PS: counted contributions
 * in rank order, one optimizer step a distinct key.
 */
#include "base/log.h"
#include "server/save.h"
#include "server/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rps_contributed *
rps_contributed_create(uint32_t replica_count)
{
    return calloc((size_t)replica_count + 1, sizeof(struct rps_contributed));
}

void
rps_contributed_destroy(
        struct rps_contributed *contributed, uint32_t replica_count)
{
    for (uint32_t rank = 0; contributed != NULL && rank < replica_count;
            rank++) {
        rps_pushed_clear(&contributed[rank].push);
    }
    free(contributed);
}

struct rps_changes *
rps_changes_of_locked(struct rps_service *service, uint64_t table_id)
{
    struct rps_changes *grown;

    for (size_t i = 0; i < service->change_count; i++) {
        if (service->changes[i].table_id == table_id) {
            return &service->changes[i];
        }
    }
    grown = realloc(
            service->changes, (service->change_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return NULL;
    }
    service->changes = grown;
    grown += service->change_count++;
    memset(grown, 0, sizeof(*grown));
    grown->table_id = table_id;
    return grown;
}

void
rps_changes_add(
        struct rps_service *service, uint64_t table_id, uint64_t updates)
{
    struct rps_changes *changes;

    pthread_mutex_lock(&service->lock);
    changes = rps_changes_of_locked(service, table_id);
    if (changes != NULL) { /* else SIGTERM's words say less */
        changes->updates += updates;
    }
    pthread_mutex_unlock(&service->lock);
}

/* What is told once a table: the first key whose gradient was not finite,
 * the first keys without room. */
static void
report_refused(struct rps_service *service, struct rps_table *table,
        const struct rps_update *update, const struct rps_apply_report *report)
{
    const char *name = rps_table_spec_of(table)->name;
    struct rps_changes *changes;
    struct rps_log_about about = {.table = name, .step = update->step};
    struct rps_error why = {.text = ""};
    bool nonfinite = false, full = false;

    pthread_mutex_lock(&service->lock);
    changes = rps_changes_of_locked(service, rps_table_id_of(table));
    if (changes != NULL) {
        nonfinite = report->nonfinite > 0 && !changes->nonfinite_told;
        full = report->dropped > 0 && !changes->full_told;
        changes->nonfinite_told = changes->nonfinite_told || nonfinite;
        changes->full_told = changes->full_told || full;
    }
    pthread_mutex_unlock(&service->lock);
    rps_log_enter(&about);
    if (nonfinite) {
        rps_service_event(service, RPS_LOG_WARN, "nonfinite_gradient",
                "table %s: the gradient of key %" PRIu64 " at step %" PRIu64
                " is not finite and was refused; STAT counts further ones",
                name, report->nonfinite_key, update->step);
    }
    if (full) {
        (void)rps_table_fail_full(table, &why);
        rps_service_event(service, RPS_LOG_WARN, "table_full",
                "table %s: no room for %" PRIu64 " new keys at step %" PRIu64
                ", their gradients were dropped; %s; STAT counts further ones",
                name, report->dropped, update->step, why.text);
    }
    rps_log_leave(&about);
}

/* `done`: tables that this call has stepped. */
static rps_status
fail_apply(const struct rps_service *service, rps_status status, uint64_t step,
        size_t table, size_t done, struct rps_error *error)
{
    const struct rps_table *failed =
            table < rps_store_count(service->store)
                    ? rps_store_at(service->store, table)
                    : NULL;
    struct rps_error why = {.text = "no memory to apply it"};
    char others[64] = "";

    if (done > 0) {
        snprintf(others, sizeof(others), "; %zu other tables have the step",
                done);
    }
    if (status == RPS_E_LIMIT && failed != NULL) {
        (void)rps_table_fail_full(failed, &why);
    } else if (failed != NULL) {
        (void)rps_fail(&why, status, "no memory to apply it to table %s",
                rps_table_spec_of(failed)->name);
    }
    return rps_fail(error, status, "step %" PRIu64 ": %.800s%s", step, why.text,
            others);
}

/* A row of floats a key: as they came, or as they were unfolded. */
static const float *
gradients_of(const struct rps_push_frame *frame, const struct rps_section *rows)
{
    for (size_t i = 0; i < frame->unfolded_count; i++) {
        if (frame->unfolded[i].table_id == rows->table_id) {
            return frame->unfolded[i].rows;
        }
    }
    return rps_message_array(&frame->message, rows);
}

/* Sections of one table in all frames, in their order. */
static size_t
gather(const struct rps_push_frame *const *frames, size_t count,
        uint64_t table_id, struct rps_contribution *contributions,
        struct rps_update *update)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        const struct rps_message *message = &frames[i]->message;
        const struct rps_section *keys =
                rps_message_find(message, RPS_SECTION_KEYS, table_id);
        const struct rps_section *rows =
                rps_message_find(message, RPS_SECTION_ROWS, table_id);
        const struct rps_section *counts =
                rps_message_find(message, RPS_SECTION_COUNTS, table_id);

        if (keys == NULL || rows == NULL) {
            continue;
        }
        if (n == 0) {
            update->learning_rate = rows->learning_rate;
        }
        contributions[n].count = keys->count;
        contributions[n].keys = rps_message_array(message, keys);
        contributions[n].gradients = gradients_of(frames[i], rows);
        contributions[n].counts =
                counts != NULL ? rps_message_array(message, counts) : NULL;
        n++;
    }
    return n;
}

rps_status
rps_apply_frames(struct rps_service *service,
        const struct rps_push_frame *const *frames, size_t count,
        const struct rps_update *base, size_t *next_table,
        struct rps_error *error)
{
    struct rps_contribution *contributions =
            calloc(count + 1, sizeof(*contributions));
    rps_status status = contributions != NULL ? RPS_OK : RPS_E_NOMEM;
    size_t done = 0;

    for (; status == RPS_OK && *next_table < rps_store_count(service->store);
            ++*next_table) {
        struct rps_table *table = rps_store_at(service->store, *next_table);
        uint64_t table_id = rps_table_id_of(table);
        struct rps_apply_report report = {0};
        struct rps_update update = *base;
        size_t n = gather(frames, count, table_id, contributions, &update);

        if (n == 0) {
            continue;
        }
        status = rps_table_apply(table, &update, contributions, n, &report);
        if (status != RPS_OK) {
            break;
        }
        done++;
        rps_changes_add(service, table_id, report.applied);
        if (report.nonfinite > 0 || report.dropped > 0) {
            report_refused(service, table, &update, &report);
        }
    }
    free(contributions);
    if (status != RPS_OK) {
        return fail_apply(
                service, status, base->step, *next_table, done, error);
    }
    return RPS_OK;
}

/* Frames of the counted ranks in ascending order of rank; NULL: no memory. */
static const struct rps_push_frame **
counted_frames(struct rps_service *service,
        const struct rps_wire_decision *decision, size_t *count_out)
{
    const struct rps_push_frame **frames;
    size_t count = 0;

    for (uint32_t i = 0; i < decision->rank_count; i++) {
        count += service->contributed[decision->ranks[i]].push.frame_count;
    }
    frames = calloc(count + 1, sizeof(*frames));
    count = 0;
    for (uint32_t i = 0; frames != NULL && i < decision->rank_count; i++) {
        struct rps_contributed *from =
                &service->contributed[decision->ranks[i]];

        for (struct rps_push_frame *frame = from->push.first; frame != NULL;
                frame = frame->next) {
            frames[count++] = frame;
        }
        /* without a loss nobody computed: all leave with the step */
        if (!from->stored && !isnan(decision->loss)) {
            rps_service_event(service, RPS_LOG_WARN, "counted_without_push",
                    "step %" PRIu64 " counts rank %" PRIu32
                    ", which pushed nothing to this PS",
                    decision->step, decision->ranks[i]);
        }
    }
    *count_out = count;
    return frames;
}

static bool
is_counted(const struct rps_wire_decision *decision, uint32_t rank)
{
    for (uint32_t i = 0; i < decision->rank_count; i++) {
        if (decision->ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* The step is over: contributions are applied or dropped, all are gone. */
static void
close_step(
        struct rps_service *service, const struct rps_wire_decision *decision)
{
    for (uint32_t rank = 0; rank < service->terms.replica_count; rank++) {
        struct rps_contributed *from = &service->contributed[rank];

        if (from->stored && !is_counted(decision, rank)) {
            atomic_fetch_add(&service->dropped, 1);
        }
        from->stored = false;
        rps_pushed_clear(&from->push);
    }
    service->apply_next = 0;
    rps_tables_set_step(service->store, decision->step);
    atomic_store(&service->step, decision->step);
}

static rps_status
apply_exclusive(struct rps_service *service,
        const struct rps_wire_decision *decision, struct rps_error *error)
{
    struct rps_update update = {.step = decision->step,
            .now_s = rps_service_now(service).unix_s,
            .t = decision->step,
            .learning_rate = NAN,
            .scale = 1.0f,
            .drop_new = true};
    const struct rps_push_frame **frames;
    size_t count;
    rps_status status;

    if (service->terms.combine == RPS_COMBINE_MEAN &&
            decision->rank_count > 0) {
        update.scale = 1.0f / (float)decision->rank_count;
    }
    frames = counted_frames(service, decision, &count);
    if (frames == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory to apply a step");
    }
    /* after a failure the same decision goes on at the table that failed */
    status = rps_apply_frames(
            service, frames, count, &update, &service->apply_next, error);
    free(frames);
    if (status == RPS_OK) {
        close_step(service, decision);
        rps_save_at_decision(service, decision);
    }
    return status;
}

static rps_status
check_decision(struct rps_service *service,
        const struct rps_wire_decision *decision, struct rps_error *error)
{
    uint64_t applied = atomic_load(&service->step);

    if (decision->step > applied + 1) {
        return rps_fail(error, RPS_E_INVAL,
                "decision of step %" PRIu64 ", but PS %" PRIu32
                " has applied step %" PRIu64 ": it missed the decision of"
                " step %" PRIu64,
                decision->step, service->options.ps_index, applied,
                applied + 1);
    }
    for (uint32_t i = 0; i < decision->rank_count; i++) {
        if (decision->ranks[i] >= service->terms.replica_count) {
            return rps_fail(error, RPS_E_INVAL,
                    "decision of step %" PRIu64 " counts rank %" PRIu32
                    " of %" PRIu32 " replicas",
                    decision->step, decision->ranks[i],
                    service->terms.replica_count);
        }
    }
    return RPS_OK;
}

/* Under the exclusive lock everything is asked again. */
static rps_status
apply_once(
        struct rps_request *request, const struct rps_wire_decision *decision)
{
    struct rps_service *service = request->service;
    rps_status status = rps_epoch_check(
            service, &request->message->header, &request->error);

    if (status != RPS_OK || decision->step <= atomic_load(&service->step)) {
        return status;
    }
    status = check_decision(service, decision, &request->error);
    return status == RPS_OK
                   ? apply_exclusive(service, decision, &request->error)
                   : status;
}

static rps_status
carry(struct rps_request *request, const struct rps_wire_decision *decision,
        bool exclusive)
{
    struct rps_service *service = request->service;
    rps_status status;

    if (exclusive) {
        return apply_once(request, decision);
    }
    pthread_rwlock_unlock(&service->state_lock);
    pthread_rwlock_wrlock(&service->state_lock);
    status = apply_once(request, decision);
    pthread_rwlock_unlock(&service->state_lock);
    pthread_rwlock_rdlock(&service->state_lock);
    if (status == RPS_OK) { /* a RESTORE may have run in between */
        status = rps_epoch_check(
                service, &request->message->header, &request->error);
    }
    return status;
}

rps_status
rps_decision_carry(struct rps_request *request, bool exclusive)
{
    struct rps_service *service = request->service;
    const struct rps_header *header = &request->message->header;
    const struct rps_section *section =
            rps_message_find(request->message, RPS_SECTION_DECISION, 0);
    struct rps_wire_decision decision;
    rps_status status;

    if (section == NULL || service->terms.mode != RPS_MODE_SYNC ||
            header->epoch != atomic_load(&service->epoch)) {
        return RPS_OK;
    }
    status = rps_decision_decode(rps_message_array(request->message, section),
            section->bytes, &decision, &request->error);
    if (status != RPS_OK) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s: its DECISION section cannot be read",
                rps_opcode_str(header->opcode));
    }
    if (decision.epoch != header->epoch) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "a decision of epoch %" PRIu32 " in a request of epoch"
                " %" PRIu32,
                decision.epoch, header->epoch);
    } else if (decision.step > atomic_load(&service->step)) {
        status = carry(request, &decision, exclusive);
    }
    rps_decision_finish(&decision);
    return status;
}

rps_status
rps_serve_apply(struct rps_request *request)
{
    if (rps_message_find(request->message, RPS_SECTION_DECISION, 0) == NULL) {
        return rps_fail(
                &request->error, RPS_E_INVAL, "APPLY needs a DECISION section");
    }
    return RPS_OK; /* it was carried out before this was called */
}
