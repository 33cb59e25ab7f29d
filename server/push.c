/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns PUSH_GRADIENTS: collects the frames of a push, then applies it
 * (async) or stores it for the decision of its step (sync). Gradients of
 * bags, and of other types than f32, are unfolded as their frame comes: what
 * is stored is a row of floats a key, whatever travelled.
 */
#include "base/log.h"
#include "proto/value.h"
#include "server/sections.h"
#include "server/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_BAGS 4096u
#define SLICE_ROWS 4096u

static void
free_unfolded(struct rps_push_frame *frame)
{
    for (size_t i = 0; i < frame->unfolded_count; i++) {
        free(frame->unfolded[i].rows);
    }
    free(frame->unfolded);
    frame->unfolded = NULL;
    frame->unfolded_count = 0;
}

static void
free_frames(struct rps_pushed *push)
{
    while (push->first != NULL) {
        struct rps_push_frame *frame = push->first;

        push->first = frame->next;
        free_unfolded(frame);
        free(frame->bytes);
        free(frame);
    }
    push->last = NULL;
}

void
rps_pushed_clear(struct rps_pushed *push)
{
    free_frames(push);
    memset(push, 0, sizeof(*push));
}

static bool
is_sync(const struct rps_service *service)
{
    return service->terms.mode == RPS_MODE_SYNC;
}

/* The rest of this push, up to its last frame, gets this answer. */
static void
settle(struct rps_pushed *push, rps_status verdict, const struct rps_error *why)
{
    free_frames(push);
    push->settled = true;
    push->verdict = verdict;
    push->why = *why;
}

/* Where steps go without slow or lost replicas it is dropped without a word:
 * the end of that step tells the replica, and no PS but PS 0 knows more. */
static rps_status
late(struct rps_request *request, uint64_t step)
{
    const rps_terms *terms = &request->service->terms;

    atomic_fetch_add(&request->service->late, 1);
    if (terms->backup_workers > 0 || terms->on_lost == RPS_ON_LOST_LEAVE) {
        return RPS_OK;
    }
    return rps_fail(&request->error, RPS_E_INVAL,
            "PUSH_GRADIENTS of step %" PRIu64 " came after its decision: step"
            " %" PRIu64 " is applied; it was dropped",
            step, atomic_load(&request->service->step));
}

/* A sync push is known by its step and rank; is it new and due? */
static rps_status
judge_sync(struct rps_request *request, struct rps_pushed *push)
{
    struct rps_service *service = request->service;
    uint32_t rank = request->session->rank;
    uint64_t applied = atomic_load(&service->step);
    rps_status verdict = RPS_OK;
    bool known;

    if (rank >= service->terms.replica_count) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "PUSH_GRADIENTS in sync mode comes from a replica of rank"
                " 0..%" PRIu32 "; this connection's HELLO named %s",
                service->terms.replica_count - 1,
                rank == RPS_NO_RANK ? "none" : "a higher one");
    }
    pthread_mutex_lock(&service->lock);
    known = rps_verdicts_find(
            &service->contributed[rank].verdicts, push->step, &verdict);
    pthread_mutex_unlock(&service->lock);
    if (known) {
        (void)rps_fail(&request->error, verdict,
                "step %" PRIu64 " of rank %" PRIu32 " was pushed before",
                push->step, rank);
        settle(push, verdict, &request->error);
        return RPS_OK;
    }
    if (push->step <= applied) {
        verdict = late(request, push->step);
        settle(push, verdict, &request->error);
        return RPS_OK;
    }
    if (push->step > applied + 1) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "PUSH_GRADIENTS of step %" PRIu64 ", but this PS has applied"
                " step %" PRIu64 ": the decision of step %" PRIu64
                " is missing here",
                push->step, applied, push->step - 1);
    }
    return RPS_OK;
}

static bool
continues(const struct rps_pushed *push, const struct rps_header *header)
{
    return push->open && push->step == header->step &&
           push->number == header->number && push->epoch == header->epoch;
}

static void
open_push(const struct rps_service *service, struct rps_pushed *push,
        const struct rps_header *header)
{
    rps_pushed_clear(push);
    push->open = true;
    push->step = header->step;
    push->number = header->number;
    push->epoch = header->epoch;
    push->drops = service->drops;
}

static void
begin(struct rps_request *request, struct rps_pushed *push)
{
    rps_status status = RPS_OK;

    open_push(request->service, push, &request->message->header);
    if (is_sync(request->service)) {
        status = judge_sync(request, push);
    }
    if (status != RPS_OK) {
        settle(push, status, &request->error);
    }
}

/* NaN means the table's; an infinite one would ruin every row, and a negative
 * one climbs. */
static rps_status
check_rates(const struct rps_parts *parts, struct rps_error *error)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];

        const float rate = part->rows->learning_rate;

        if (isinf(rate) || rate < 0.0f) {
            return rps_fail(error, RPS_E_INVAL,
                    "table %s: the learning rate of the push is %g: it is 0 "
                    "or more and finite, or NaN for the table's",
                    part->spec->name, (double)rate);
        }
    }
    return RPS_OK;
}

/* All of it; what is right is left in *parts, to be finished. */
static rps_status
check_sections(struct rps_request *request, const struct rps_message *message,
        struct rps_parts *parts)
{
    rps_status status = rps_parts_collect(request->service, message,
            RPS_KIND_BIT(RPS_SECTION_KEYS) | RPS_KIND_BIT(RPS_SECTION_ROWS),
            RPS_KIND_BIT(RPS_SECTION_COUNTS) |
                    RPS_KIND_BIT(RPS_SECTION_OFFSETS) |
                    RPS_KIND_BIT(RPS_SECTION_INDEX),
            parts, &request->error);

    if (status == RPS_OK) {
        status = rps_parts_status(parts);
    }
    if (status == RPS_OK) {
        status = check_rates(parts, &request->error);
    }
    return status == RPS_OK ? rps_wire_bags_check_size(parts, &request->error)
                            : status;
}

/* --- gradients that are not floats, a row a key -------------------------- */

static rps_status
spread_bags(struct rps_request *request, const struct rps_table_part *part,
        const void *from, float *rows)
{
    const uint64_t keys = part->keys->count;
    const uint64_t bags = part->bags.count;
    bool *seen = calloc(keys + 1, sizeof(*seen));
    rps_status status = seen != NULL ? RPS_OK : RPS_E_NOMEM;
    uint64_t key = 0;

    for (uint64_t at = 0; status == RPS_OK && at < bags; at += SLICE_BAGS) {
        const uint64_t n = bags - at < SLICE_BAGS ? bags - at : SLICE_BAGS;

        rps_wire_bags_spread(&part->bags, at, n, part->spec->dim,
                part->rows->value, from, rows, seen);
        if (rps_request_is_late(request)) {
            status = rps_request_fail_late(request);
        }
    }
    while (status == RPS_OK && key < keys && seen[key]) {
        key++;
    }
    if (status == RPS_OK && key < keys) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "table %s: the key at position %" PRIu64 " is in no bag",
                part->spec->name, key);
    }
    free(seen);
    return status;
}

static rps_status
decode_rows(struct rps_request *request, const struct rps_table_part *part,
        const uint8_t *from, float *rows)
{
    const uint32_t dim = part->spec->dim;
    const uint16_t value = part->rows->value;
    const size_t bytes = (size_t)rps_value_row_bytes(value, dim);
    const uint64_t count = part->rows->count;

    for (uint64_t at = 0; at < count; at += SLICE_ROWS) {
        const uint64_t n = count - at < SLICE_ROWS ? count - at : SLICE_ROWS;

        if (rps_request_is_late(request)) {
            return rps_request_fail_late(request);
        }
        rps_value_decode(value, dim, n, from + at * bytes, rows + at * dim);
    }
    return RPS_OK;
}

static rps_status
unfold_part(struct rps_request *request, const struct rps_message *message,
        const struct rps_table_part *part, struct rps_push_frame *frame)
{
    const uint64_t floats = part->keys->count * part->spec->dim;
    struct rps_unfolded *to = &frame->unfolded[frame->unfolded_count];
    const void *from = rps_message_array(message, part->rows);

    to->rows = malloc((floats + 1) * sizeof(*to->rows));
    if (to->rows == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM,
                "no memory for the gradients of table %s", part->spec->name);
    }
    to->table_id = part->table_id;
    frame->unfolded_count++;
    frame->unfolded_bytes += floats * sizeof(*to->rows);
    return part->offsets != NULL ? spread_bags(request, part, from, to->rows)
                                 : decode_rows(request, part, from, to->rows);
}

/* Of the parts that need it; free_unfolded() follows in any case. */
static rps_status
unfold(struct rps_request *request, const struct rps_parts *parts,
        struct rps_push_frame *frame)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];

        if (part->offsets == NULL && part->rows->value == RPS_VALUE_F32) {
            continue;
        }
        if (frame->unfolded == NULL) {
            frame->unfolded = calloc(parts->count, sizeof(*frame->unfolded));
        }
        status = frame->unfolded != NULL
                         ? unfold_part(request, request->message, part, frame)
                         : rps_fail(&request->error, RPS_E_NOMEM,
                                   "no memory for gradients");
    }
    return status;
}

/* --- a push of many frames, or one of sync ------------------------------- */

/* A copy that takes what was unfolded. */
static rps_status
copy_frame(struct rps_push_frame *from, struct rps_push_frame **out)
{
    const struct rps_message *message = &from->message;
    size_t length = RPS_HEADER_BYTES + message->header.body_bytes;
    struct rps_push_frame *frame = malloc(sizeof(*frame));
    size_t into = (size_t)((const uint8_t *)message->sections - message->frame);

    *out = frame;
    if (frame == NULL) {
        return RPS_E_NOMEM;
    }
    *frame = *from;
    frame->bytes = malloc(length);
    if (frame->bytes == NULL) {
        free(frame);
        *out = NULL;
        return RPS_E_NOMEM;
    }
    from->unfolded = NULL;
    from->unfolded_count = 0;
    memcpy(frame->bytes, message->frame, length);
    frame->message.frame = frame->bytes;
    frame->message.sections =
            (const struct rps_section *)(const void *)(frame->bytes + into);
    return RPS_OK;
}

static rps_status
keep_frame(struct rps_request *request, struct rps_pushed *push,
        struct rps_push_frame *here)
{
    uint64_t bytes_max = request->service->terms.step_bytes_max;
    struct rps_push_frame *frame;

    push->bytes += request->message->header.body_bytes + here->unfolded_bytes;
    if (push->bytes > bytes_max) {
        return rps_fail(&request->error, RPS_E_LIMIT,
                "PUSH_GRADIENTS of step %" PRIu64 " exceeds step_bytes_max,"
                " which is %" PRIu64 " bytes a replica and PS: raise"
                " --step-bytes-max or push fewer rows a step",
                push->step, bytes_max);
    }
    if (copy_frame(here, &frame) != RPS_OK) {
        return rps_fail(&request->error, RPS_E_NOMEM,
                "no memory to hold a push of step %" PRIu64, push->step);
    }
    if (push->last != NULL) {
        push->last->next = frame;
    } else {
        push->first = frame;
    }
    push->last = frame;
    push->frame_count++;
    return RPS_OK;
}

/* Give the push to the decision of its step; a second one is dropped. The
 * decision may have come since the first frame of this push. */
static rps_status
store(struct rps_request *request, struct rps_pushed *push)
{
    struct rps_service *service = request->service;
    struct rps_contributed *to;
    rps_status verdict = RPS_OK;

    pthread_mutex_lock(&service->lock);
    to = &service->contributed[request->session->rank];
    if (rps_verdicts_find(&to->verdicts, push->step, &verdict)) {
        (void)rps_fail(&request->error, verdict,
                "step %" PRIu64 " was pushed before", push->step);
    } else if (push->step <= atomic_load(&service->step)) {
        verdict = late(request, push->step);
    } else {
        rps_pushed_clear(&to->push);
        to->push = *push;
        to->stored = true;
        rps_verdicts_keep(&to->verdicts, push->step, RPS_OK);
        push->first = NULL;
    }
    pthread_mutex_unlock(&service->lock);
    return verdict;
}

/* c of async: the largest step that was applied. */
static void
raise_step(struct rps_service *service, uint64_t step)
{
    uint64_t seen = atomic_load(&service->step);

    if (seen < step) {
        rps_tables_set_step(service->store, step);
    }
    while (seen < step &&
            !atomic_compare_exchange_weak(&service->step, &seen, step)) {
    }
}

static rps_status
apply_now(struct rps_request *request, const struct rps_pushed *push,
        const struct rps_push_frame *here)
{
    const struct rps_update update = {.step = push->step,
            .now_s = rps_service_now(request->service).unix_s,
            .t = 0,
            .learning_rate = NAN,
            .scale = 1.0f};
    const struct rps_push_frame **frames =
            calloc(push->frame_count + 1, sizeof(*frames));
    size_t count = 0;
    size_t next_table = 0;
    rps_status status;

    if (frames == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory to apply");
    }
    for (struct rps_push_frame *frame = push->first; frame != NULL;
            frame = frame->next) {
        frames[count++] = frame;
    }
    if (count == 0) {
        frames[count++] = here; /* one frame, not copied */
    }
    status = rps_apply_frames(request->service, frames, count, &update,
            &next_table, &request->error);
    free(frames);
    if (status == RPS_OK) {
        raise_step(request->service, push->step);
    }
    return status;
}

/* A DROP came between the frames: the table of an earlier one may be gone, or
 * another of its name be there. */
static rps_status
check_again(struct rps_request *request, const struct rps_pushed *push)
{
    rps_status status = RPS_OK;
    const struct rps_push_frame *frame = push->first;

    if (push->drops == request->service->drops) {
        return RPS_OK;
    }
    for (; status == RPS_OK && frame != NULL; frame = frame->next) {
        struct rps_parts parts;

        status = check_sections(request, &frame->message, &parts);
        rps_parts_finish(&parts);
    }
    return status;
}

/* Is one frame of async, applied from where it lies? */
static bool
applies_in_place(
        const struct rps_request *request, const struct rps_pushed *push)
{
    return !is_sync(request->service) && push->first == NULL &&
           (request->message->header.flags & RPS_FLAG_MORE) == 0;
}

/* The push takes effect. */
static rps_status
end_push(struct rps_request *request, struct rps_pushed *push,
        const struct rps_push_frame *here)
{
    rps_status status = check_again(request, push);

    if (status == RPS_OK && rps_request_is_late(request)) {
        status = rps_request_fail_late(request);
    }
    if (status != RPS_OK) {
        return status;
    }
    return is_sync(request->service) ? store(request, push)
                                     : apply_now(request, push, here);
}

static rps_status
take_frame(struct rps_request *request, struct rps_pushed *push, bool more)
{
    struct rps_push_frame here = {.message = *request->message};
    struct rps_parts parts;
    rps_status status = check_sections(request, request->message, &parts);

    if (status == RPS_OK) {
        status = unfold(request, &parts, &here);
    }
    rps_parts_finish(&parts);
    /* a frame without sections adds nothing, and would not be bounded */
    if (status == RPS_OK && request->message->section_count > 0 &&
            !applies_in_place(request, push)) {
        status = keep_frame(request, push, &here);
    }
    if (status == RPS_OK && !more) {
        status = end_push(request, push, &here);
    }
    free_unfolded(&here);
    if (status != RPS_OK) {
        settle(push, status, &request->error);
    }
    return status;
}

rps_status
rps_serve_push(struct rps_request *request)
{
    struct rps_pushed *push = &request->session->push;
    const struct rps_header *header = &request->message->header;
    bool more = (header->flags & RPS_FLAG_MORE) != 0;
    rps_status status;

    if (!continues(push, header)) {
        begin(request, push);
    }
    if (push->settled) {
        status = push->verdict;
        request->error = push->why;
    } else {
        status = take_frame(request, push, more);
    }
    if (!more) {
        rps_pushed_clear(push);
    }
    return status;
}

void
rps_push_refuse(struct rps_request *request, rps_status status)
{
    struct rps_pushed *push = &request->session->push;
    const struct rps_header *header = &request->message->header;

    if (!continues(push, header)) {
        open_push(request->service, push, header);
    }
    settle(push, status, &request->error);
    if ((header->flags & RPS_FLAG_MORE) == 0) {
        rps_pushed_clear(push);
    }
}
