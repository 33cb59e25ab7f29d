/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a dump from its begin to its end: which step runs, what was written,
 * and the first failure. Files are written by whoever gives an operator, all
 * streams at once; the lock is held for numbers alone.
 */
#include "client/precision/dump.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "client/precision/clean.h"
#include "client/precision/dump_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rps_status
nomem(struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "dump: no memory");
}

/* --- begin -------------------------------------------------------------------
 */

static rps_status
take_run(struct rps_dump *dump, const char *run, struct rps_error *error)
{
    json_t *object = json_loads(run == NULL ? "{}" : run, 0, NULL);

    if (!json_is_object(object)) {
        json_decref(object);
        return rps_fail(error, RPS_E_INVAL, "dump: run is no JSON object");
    }
    dump->run = rps_json_text(object);
    return dump->run != NULL ? RPS_OK : nomem(error);
}

static void
destroy(struct rps_dump *dump)
{
    pthread_mutex_destroy(&dump->lock);
    free(dump->path);
    free(dump->rotated);
    free(dump->base);
    free(dump->run);
    free(dump);
}

rps_status
rps_dump_begin(struct rps_dump **dump_out,
        const struct rps_dump_options *options, struct rps_error *error)
{
    struct rps_dump *dump = calloc(1, sizeof(*dump));
    rps_status status;

    *dump_out = NULL;
    if (dump == NULL) {
        return nomem(error);
    }
    pthread_mutex_init(&dump->lock, NULL);
    dump->steps = options->steps;
    dump->index_is_step = options->index_is_step;
    dump->bytes_max = options->bytes_max;
    dump->start_us = rps_clock_unix_us();
    dump->start_ns = rps_clock_ns();
    status = take_run(dump, options->run, error);
    if (status == RPS_OK) {
        status = rps_dump_folder_make(dump, options, error);
    }
    if (status != RPS_OK) {
        destroy(dump);
        return status;
    }
    *dump_out = dump;
    return RPS_OK;
}

rps_status
rps_dump_expect(struct rps_dump *dump, uint64_t bytes, struct rps_error *error)
{
    const uint64_t free_bytes = rps_dump_free_bytes(dump->path);
    char need[32], have[32];

    if (bytes > dump->bytes_max) {
        return rps_fail(error, RPS_E_LIMIT,
                "dump: it would have %s (%" PRIu64
                " bytes), and at most %s are allowed: dump fewer steps "
                "(--dump-step), or allow more (--dump-limit)",
                rps_format_bytes(bytes, need), bytes,
                rps_format_bytes(dump->bytes_max, have));
    }
    if (bytes > free_bytes) {
        return rps_fail(error, RPS_E_LIMIT,
                "dump: it would have %s (%" PRIu64
                " bytes), and where %s lies %s are free: dump fewer steps "
                "(--dump-step), or elsewhere (--dump-path)",
                rps_format_bytes(bytes, need), bytes, dump->path,
                rps_format_bytes(free_bytes, have));
    }
    return RPS_OK;
}

uint64_t
rps_dump_bytes(uint64_t steps, uint64_t operations, uint64_t bytes)
{
    uint64_t one = 0, all = 0;

    if (__builtin_mul_overflow(operations, RPS_DUMP_OPERATOR_BYTES, &one) ||
            __builtin_add_overflow(one, bytes, &one) ||
            __builtin_add_overflow(one, RPS_DUMP_STEP_BYTES, &one) ||
            __builtin_mul_overflow(one, steps, &all)) {
        return UINT64_MAX;
    }
    return all;
}

/* --- what was written
 * ---------------------------------------------------------
 */

/* The first failure ends the dump; `error` has its words. */
static void
fail(struct rps_dump *dump, rps_status status, const struct rps_error *error)
{
    pthread_mutex_lock(&dump->lock);
    if (dump->status == RPS_OK) {
        dump->status = status;
        dump->error = *error;
    }
    /* relaxed: who sees it late is refused under the lock */
    atomic_store_explicit(&dump->on, false, memory_order_relaxed);
    pthread_mutex_unlock(&dump->lock);
}

/* bytes + reserved <= bytes_max */
static rps_status
check_room_locked(
        const struct rps_dump *dump, uint64_t bytes, struct rps_error *error)
{
    const uint64_t used = dump->result.bytes + dump->reserved;
    char limit[32];

    if (dump->status != RPS_OK) {
        return rps_fail(error, dump->status, "%s", dump->error.text);
    }
    if (used > dump->bytes_max || bytes > dump->bytes_max - used) {
        return rps_fail(error, RPS_E_LIMIT,
                "dump: it ended in step %" PRIu64
                ", whose next file would go beyond the %s that are allowed: "
                "dump fewer steps (--dump-step), or allow more (--dump-limit)",
                dump->step == NULL ? 0 : dump->step->step,
                rps_format_bytes(dump->bytes_max, limit));
    }
    return RPS_OK;
}

rps_status
rps_dump_reserve(struct rps_dump *dump, uint64_t bytes, uint64_t *timestamp_out,
        struct rps_error *error)
{
    uint64_t now;
    rps_status status;

    pthread_mutex_lock(&dump->lock);
    status = check_room_locked(dump, bytes, error);
    if (status == RPS_OK) {
        now = dump->start_us + (rps_clock_ns() - dump->start_ns) / 1000u;
        dump->last_us = now > dump->last_us ? now : dump->last_us + 1;
        *timestamp_out = dump->last_us;
        dump->result.bytes += bytes;
        dump->result.files++;
    }
    pthread_mutex_unlock(&dump->lock);
    return status;
}

/* --- steps
 * --------------------------------------------------------------------
 */

static void
destroy_step(struct rps_dump_step_files *step)
{
    for (size_t i = 0; i < step->capacity; i++) {
        free(step->entries[i]);
    }
    free(step->entries);
    free(step->folder);
    free(step);
}

/* It has ended, and no operator of it is left: nobody else knows it. */
static void
finish_step(struct rps_dump *dump, struct rps_dump_step_files *step)
{
    struct rps_error error;
    uint64_t bytes = 0;
    rps_status status;
    bool whole;

    pthread_mutex_lock(&dump->lock);
    whole = step->whole && dump->status == RPS_OK;
    pthread_mutex_unlock(&dump->lock);
    status = rps_dump_manifest_write(dump, step, whole, &bytes, &error);
    if (status != RPS_OK) {
        fail(dump, status, &error);
        /* a full disk: without its manifest nobody knows what it is */
        (void)rps_dir_remove(step->folder, NULL);
    }
    pthread_mutex_lock(&dump->lock);
    dump->reserved -= step->reserve;
    dump->result.bytes += bytes;
    if (whole && status == RPS_OK) {
        dump->result.steps++;
    }
    pthread_mutex_unlock(&dump->lock);
    destroy_step(step);
}

void
rps_dump_step_end(struct rps_dump *dump)
{
    struct rps_dump_step_files *step;
    bool last = false;

    pthread_mutex_lock(&dump->lock);
    step = dump->step;
    dump->step = NULL;
    if (step != NULL) {
        step->ended = true;
        last = step->open == 0;
    }
    /* relaxed: see `on` */
    atomic_store_explicit(&dump->on, false, memory_order_relaxed);
    pthread_mutex_unlock(&dump->lock);
    if (last) {
        finish_step(dump, step);
    }
}

static rps_status
make_step(struct rps_dump *dump, uint64_t number, uint64_t index,
        struct rps_dump_step_files **step_out, struct rps_error *error)
{
    struct rps_dump_step_files *step = calloc(1, sizeof(*step));
    rps_status status;

    if (step == NULL) {
        return nomem(error);
    }
    step->step = number;
    step->whole = true;
    step->folder = rps_format("%s/%" PRIu64, dump->base, index);
    status = step->folder == NULL ? nomem(error)
                                  : rps_dir_make(step->folder, error);
    if (status != RPS_OK) {
        destroy_step(step);
        return status;
    }
    *step_out = step;
    return RPS_OK;
}

/* With room for its manifest. */
static rps_status
begin_step(struct rps_dump *dump, uint64_t number, struct rps_error *error)
{
    const uint64_t frame = rps_dump_manifest_frame_bytes(dump);
    struct rps_dump_step_files *step = NULL;
    rps_status status = make_step(dump, number,
            dump->index_is_step ? number : dump->index, &step, error);

    if (status != RPS_OK) {
        return status;
    }
    pthread_mutex_lock(&dump->lock);
    status = check_room_locked(dump, frame, error);
    if (status == RPS_OK) {
        step->reserve = frame;
        dump->reserved += frame;
        dump->index++;
        dump->step = step;
        /* relaxed: see `on` */
        atomic_store_explicit(&dump->on, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&dump->lock);
    if (status != RPS_OK) {
        (void)rps_dir_remove(step->folder, NULL);
        destroy_step(step);
    }
    return status;
}

rps_status
rps_dump_failed(struct rps_dump *dump, struct rps_error *error)
{
    rps_status status;

    pthread_mutex_lock(&dump->lock);
    status = dump->status;
    if (status != RPS_OK) {
        (void)rps_fail(error, status, "%s", dump->error.text);
    }
    pthread_mutex_unlock(&dump->lock);
    return status;
}

void
rps_dump_step(struct rps_dump *dump, uint64_t step)
{
    struct rps_error error;
    rps_status status;

    rps_dump_step_end(dump);
    if (!rps_dump_steps_has(&dump->steps, step) ||
            rps_dump_failed(dump, NULL) != RPS_OK) {
        return;
    }
    status = begin_step(dump, step, &error);
    if (status != RPS_OK) {
        fail(dump, status, &error);
    }
}

bool
rps_dump_is_on(const struct rps_dump *dump)
{
    /* relaxed: see `on` */
    return dump != NULL &&
           atomic_load_explicit(&dump->on, memory_order_relaxed);
}

/* --- operators
 * ----------------------------------------------------------------
 */

static void
destroy_token(struct rps_dump_token *token)
{
    if (token == NULL) {
        return;
    }
    json_decref(token->inputs);
    free(token->stem);
    free(token);
}

/* The operator leaves its step, with an entry or without. */
static void
leave_step(struct rps_dump *dump, struct rps_dump_token *token, char *entry)
{
    struct rps_dump_step_files *step = token->step;
    bool last;

    pthread_mutex_lock(&dump->lock);
    if (entry == NULL) {
        step->whole = false;
    } else {
        step->entries[token->task] = entry;
    }
    step->open--;
    last = step->ended && step->open == 0;
    pthread_mutex_unlock(&dump->lock);
    destroy_token(token);
    if (last) {
        finish_step(dump, step);
    }
}

static bool
grow_entries(struct rps_dump_step_files *step)
{
    size_t capacity = step->capacity == 0 ? 64 : step->capacity * 2;
    char **entries;

    if (step->tasks < step->capacity) {
        return true;
    }
    entries = realloc(step->entries, capacity * sizeof(*entries));
    if (entries == NULL) {
        return false;
    }
    memset(entries + step->capacity, 0,
            (capacity - step->capacity) * sizeof(*entries));
    step->entries = entries;
    step->capacity = capacity;
    return true;
}

/* False: no step runs that is dumped. */
static bool
join_step(struct rps_dump *dump, struct rps_dump_token *token, bool *nomem_out)
{
    bool joined = false;

    pthread_mutex_lock(&dump->lock);
    if (dump->step != NULL && dump->status == RPS_OK) {
        joined = grow_entries(dump->step);
        *nomem_out = !joined;
    }
    if (joined) {
        token->step = dump->step;
        token->task = dump->step->tasks++;
        dump->step->open++;
    }
    pthread_mutex_unlock(&dump->lock);
    return joined;
}

/* "linear.top_2_linear.12.0" */
static char *
make_stem(const struct rps_dump_operator *op, uint64_t task)
{
    char type[RPS_DUMP_NAME_BYTES_MAX / 2 + 1];
    char name[RPS_DUMP_NAME_BYTES_MAX + 1];

    (void)snprintf(type, sizeof(type), "%s", op->type);
    (void)snprintf(name, sizeof(name), "%s",
            op->name == NULL || op->name[0] == '\0' ? op->type : op->name);
    rps_dump_clean(type);
    rps_dump_clean(name);
    return rps_format(
            "%s.%s.%" PRIu64 ".%" PRIu32, type, name, task, op->stream);
}

static rps_status
write_tensors(struct rps_dump *dump, const struct rps_dump_token *token,
        const char *way, const struct rps_dump_tensor *tensors, uint32_t count,
        json_t *array, struct rps_error *error)
{
    rps_status status = array != NULL ? RPS_OK : nomem(error);

    assert(count <= RPS_DUMP_TENSORS_MAX);
    for (uint32_t i = 0; i < count && status == RPS_OK; i++) {
        json_t *entry = NULL;

        status = rps_dump_tensor_write(
                dump, token, way, i, &tensors[i], &entry, error);
        if (status == RPS_OK && json_array_append_new(array, entry) != 0) {
            status = nomem(error);
        }
    }
    return status;
}

static rps_status
write_inputs(struct rps_dump *dump, struct rps_dump_token *token,
        const struct rps_dump_operator *op, struct rps_error *error)
{
    token->stem = make_stem(op, token->task);
    token->inputs = json_array();
    if (token->stem == NULL) {
        return nomem(error);
    }
    return write_tensors(dump, token, "input", op->inputs, op->input_count,
            token->inputs, error);
}

struct rps_dump_token *
rps_dump_before(struct rps_dump *dump, const struct rps_dump_operator *op)
{
    struct rps_dump_token *token;
    struct rps_error error;
    bool no_memory = false;
    rps_status status;

    if (!rps_dump_is_on(dump)) {
        return NULL;
    }
    token = calloc(1, sizeof(*token));
    if (token == NULL || !join_step(dump, token, &no_memory)) {
        if (token == NULL || no_memory) {
            status = nomem(&error);
            fail(dump, status, &error);
        }
        free(token);
        return NULL;
    }
    status = write_inputs(dump, token, op, &error);
    if (status != RPS_OK) {
        fail(dump, status, &error);
        leave_step(dump, token, NULL);
        return NULL;
    }
    return token;
}

/* Its text for the manifest, all of it. */
static rps_status
make_entry(const struct rps_dump_token *token,
        const struct rps_dump_operator *op, json_t *outputs, char **entry_out,
        struct rps_error *error)
{
    json_t *attributes =
            json_loads(op->attributes == NULL ? "{}" : op->attributes, 0, NULL);
    json_t *entry = NULL;

    if (!json_is_object(attributes)) {
        json_decref(attributes);
        return rps_fail(error, RPS_E_INVAL,
                "dump: %s's attributes are no JSON object: %s", op->name,
                op->attributes);
    }
    entry = json_pack("{s:s, s:s, s:s?, s:o, s:I, s:i, s:O, s:O}", "type",
            op->type, "name",
            op->name == NULL || op->name[0] == '\0' ? op->type : op->name,
            "holds", op->holds, "attributes", attributes, "task",
            (json_int_t)token->task, "stream", (int)op->stream, "inputs",
            token->inputs, "outputs", outputs);
    *entry_out = entry == NULL ? NULL : rps_json_text(entry);
    return *entry_out != NULL ? RPS_OK : nomem(error);
}

static rps_status
reserve_entry(struct rps_dump *dump, struct rps_dump_step_files *step,
        const char *entry, struct rps_error *error)
{
    const uint64_t bytes = strlen(entry) + 2; /* ",\n" */
    rps_status status;

    pthread_mutex_lock(&dump->lock);
    status = check_room_locked(dump, bytes, error);
    if (status == RPS_OK) {
        step->reserve += bytes;
        dump->reserved += bytes;
    }
    pthread_mutex_unlock(&dump->lock);
    return status;
}

void
rps_dump_after(struct rps_dump *dump, struct rps_dump_token *token,
        const struct rps_dump_operator *op)
{
    struct rps_error error;
    json_t *outputs;
    char *entry = NULL;
    rps_status status;

    if (token == NULL) {
        return;
    }
    outputs = json_array();
    status = write_tensors(dump, token, "output", op->outputs, op->output_count,
            outputs, &error);
    if (status == RPS_OK) {
        status = make_entry(token, op, outputs, &entry, &error);
    }
    if (status == RPS_OK) {
        status = reserve_entry(dump, token->step, entry, &error);
    }
    json_decref(outputs);
    if (status != RPS_OK) {
        fail(dump, status, &error);
        free(entry);
        entry = NULL;
    }
    leave_step(dump, token, entry);
}

/* --- end
 * ----------------------------------------------------------------------
 */

rps_status
rps_dump_end(struct rps_dump *dump, struct rps_dump_result *result,
        struct rps_error *error)
{
    rps_status status;

    *result = (struct rps_dump_result){0};
    if (dump == NULL) {
        return RPS_OK;
    }
    rps_dump_step_end(dump);
    if (dump->result.bytes == 0) {
        rps_dump_folder_unmake(dump);
    }
    *result = dump->result;
    status = dump->status;
    if (status != RPS_OK) {
        (void)rps_fail(error, status, "%s", dump->error.text);
    }
    destroy(dump);
    return status;
}
