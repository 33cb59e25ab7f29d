/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/lane.h"

#include "base/clock.h"
#include "bench/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The ids of a slice: too many for the server's caches to know them all. */
#define POOL_IDS            (1u << 18)
#define POOL_BATCHES_MAX    8192u
#define POOL_GRADIENT_BYTES ((size_t)256 << 20)
#define NEW_ROWS            (1ull << 40) /* inserted rows' numbers begin here */
#define BESIDE_DEPTH        4u
#define CHECK_BATCHES       4u

static uint64_t *
lane_keys(const struct bench_lane *lane, size_t at)
{
    return lane->keys + at * lane->batch;
}

static size_t
row_floats(const struct bench_lane *lane)
{
    return lane->batch * lane->dim;
}

/* --- memory -------------------------------------------------------------- */

static bool
uses(const struct bench_lane *lane, enum bench_op op)
{
    return !lane->is_beside && lane->load->args->mix[op] > 0;
}

static size_t
pool_batches(const struct bench_lane *lane)
{
    const size_t lanes = lane->load->connections;
    const size_t depth = lane->depth;
    size_t batches = POOL_IDS / lanes / lane->batch;

    if (uses(lane, BENCH_OP_PUSH)) {
        const size_t most = POOL_GRADIENT_BYTES / lanes /
                            (row_floats(lane) * sizeof(float));
        batches = batches < most ? batches : most;
    }
    batches = batches < POOL_BATCHES_MAX ? batches : POOL_BATCHES_MAX;
    return batches > depth ? batches : depth;
}

static bool
allocate(struct bench_lane *lane)
{
    const size_t floats = row_floats(lane);
    bool done = false;

    lane->ops = calloc(lane->batches, sizeof(*lane->ops));
    lane->rows = calloc(lane->batches * lane->batch, sizeof(*lane->rows));
    lane->keys = calloc(lane->batches * lane->batch, sizeof(*lane->keys));
    lane->pushes = calloc(lane->batches, sizeof(*lane->pushes));
    lane->wanted = calloc(floats, sizeof(float));
    lane->starts = calloc(floats, sizeof(float));
    done = lane->ops != NULL && lane->rows != NULL && lane->keys != NULL &&
           lane->pushes != NULL && lane->wanted != NULL && lane->starts != NULL;
    if (uses(lane, BENCH_OP_PUSH)) {
        lane->gradients = calloc(lane->batches * floats, sizeof(float));
        done = done && lane->gradients != NULL;
    }
    if (uses(lane, BENCH_OP_INSERT)) {
        lane->insert_gradients = calloc(floats, sizeof(float));
        done = done && lane->insert_gradients != NULL;
    }
    for (size_t i = 0; i < lane->depth; i++) {
        lane->slots[i].rows = calloc(floats, sizeof(float));
        lane->slots[i].keys = calloc(lane->batch, sizeof(uint64_t));
        done = done && lane->slots[i].rows != NULL &&
               lane->slots[i].keys != NULL;
    }
    return done;
}

rps_status
bench_lane_init(struct bench_lane *lane, struct rps_error *error)
{
    struct bench_load *load = lane->load;
    const struct bench_net_args *args = load->args;
    rps_table_spec spec;
    rps_status status = RPS_OK;

    lane->is_beside = lane->index == load->connections;
    lane->batch = lane->is_beside ? load->beside : args->batch;
    lane->depth = lane->is_beside ? BESIDE_DEPTH : args->depth;
    lane->dim = args->dim;
    lane->batches = pool_batches(lane);
    if (!allocate(lane) || !bench_dist_init(&lane->dist, &args->dist, load->set,
                                   args->seed + lane->index, lane->batch)) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    if (load->counts != NULL && !lane->is_beside) {
        bench_dist_limit(&lane->dist, load->connections, lane->index);
    }
    for (size_t i = 0; lane->insert_gradients != NULL && i < lane->batch; i++) {
        bench_gradient(i, lane->dim, lane->insert_gradients + i * lane->dim);
    }
    status = bench_client_open(
            &lane->client, load->server, load->transport, error);
    if (status != RPS_OK) {
        return status;
    }
    bench_net_spec(args, &spec);
    status = rps_get_embedding_table(lane->client, &spec, &lane->table);
    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "%s",
                                      rps_client_error(lane->client));
}

void
bench_lane_finish(struct bench_lane *lane)
{
    rps_client_close(lane->client);
    bench_dist_finish(&lane->dist);
    bench_series_finish(&lane->micros);
    free(lane->ops);
    free(lane->rows);
    free(lane->keys);
    free(lane->pushes);
    free(lane->gradients);
    free(lane->insert_gradients);
    free(lane->wanted);
    free(lane->starts);
    for (size_t i = 0; i < BENCH_DEPTH_MAX; i++) {
        free(lane->slots[i].rows);
        free(lane->slots[i].keys);
    }
}

/* --- draws --------------------------------------------------------------- */

static enum bench_op
draw_op(struct bench_lane *lane)
{
    const uint64_t *mix = lane->load->args->mix;
    uint64_t sum = 0;
    uint64_t at = 0;

    if (lane->is_beside || lane->turn->only_lookups) {
        return BENCH_OP_LOOKUP;
    }
    for (size_t op = 0; op < BENCH_OP_COUNT; op++) {
        sum += mix[op];
    }
    at = rps_mix64(rps_mix64(lane->draws++) ^ lane->index) % sum;
    for (size_t op = 0; op + 1 < BENCH_OP_COUNT; op++) {
        if (at < mix[op]) {
            return (enum bench_op)op;
        }
        at -= mix[op];
    }
    return BENCH_OP_INSERT;
}

/* Its rows' gradients; few differ (bench/model.h). */
static void
fill_gradients(struct bench_lane *lane, size_t at)
{
    const uint32_t *rows = lane->rows + at * lane->batch;
    float *gradients = lane->gradients + at * row_floats(lane);

    for (size_t i = 0; i < lane->batch; i++) {
        memcpy(gradients + i * lane->dim,
                lane->load->gradients +
                        rows[i] % BENCH_GRADIENT_CLASSES * lane->dim,
                lane->dim * sizeof(float));
    }
}

void
bench_lane_draw(struct bench_lane *lane)
{
    for (size_t at = 0; at < lane->batches; at++) {
        const enum bench_op op = draw_op(lane);
        uint32_t *rows = lane->rows + at * lane->batch;
        lane->ops[at] = (uint8_t)op;
        lane->pushes[at] = 0;
        if (op == BENCH_OP_INSERT) {
            continue;
        }
        bench_dist_draw(&lane->dist, lane->batch, op == BENCH_OP_PUSH, rows);
        for (size_t i = 0; i < lane->batch; i++) {
            lane_keys(lane, at)[i] = bench_keyset_key(lane->load->set, rows[i]);
        }
        if (op == BENCH_OP_PUSH) {
            fill_gradients(lane, at);
        }
    }
}

/* --- requests ------------------------------------------------------------ */

static rps_status
client_failed(struct bench_lane *lane, rps_status status)
{
    return rps_fail(&lane->error, status, "%s", rps_client_error(lane->client));
}

static rps_status
start_lookup(struct bench_lane *lane, struct bench_slot *slot)
{
    const rps_lookup lookup = {.table = lane->table,
            .keys = lane_keys(lane, slot->at),
            .key_count = lane->batch,
            .rows = slot->rows,
            .wire = lane->turn->wire};

    return rps_lookup_start(lane->client, NULL, &lookup, 1, &slot->ticket);
}

static rps_status
start_push(struct bench_lane *lane, const uint64_t *keys,
        const float *gradients, struct bench_slot *slot)
{
    const rps_call call = {.step = bench_update.step};
    const rps_push push = {.table = lane->table,
            .keys = keys,
            .key_count = lane->batch,
            .gradients = gradients,
            .learning_rate = bench_update.learning_rate,
            .wire = lane->turn->wire};

    return rps_push_start(lane->client, &call, &push, 1, &slot->ticket);
}

static rps_status
start_insert(struct bench_lane *lane, struct bench_slot *slot)
{
    const uint64_t first =
            NEW_ROWS * (lane->index + 1) + lane->inserted++ * lane->batch;

    for (size_t i = 0; i < lane->batch; i++) {
        slot->keys[i] = rps_mix64(first + i);
    }
    return start_push(lane, slot->keys, lane->insert_gradients, slot);
}

static rps_status
start(struct bench_lane *lane, struct bench_slot *slot, uint64_t number)
{
    const size_t at = (size_t)(number % lane->batches);
    rps_status status = RPS_OK;

    slot->at = at;
    slot->answered = false;
    slot->start = rps_clock_ns();
    switch ((enum bench_op)lane->ops[at]) {
    case BENCH_OP_PUSH:
        lane->pushes[at]++;
        status = start_push(lane, lane_keys(lane, at),
                lane->gradients + at * row_floats(lane), slot);
        break;
    case BENCH_OP_INSERT:
        status = start_insert(lane, slot);
        break;
    case BENCH_OP_LOOKUP:
    default:
        status = start_lookup(lane, slot);
        break;
    }
    return status == RPS_OK ? RPS_OK : client_failed(lane, status);
}

/* i8 rounds to steps of the row's largest value / 127. */
static rps_status
check_answer(struct bench_lane *lane, const struct bench_slot *slot, size_t i,
        struct rps_error *error)
{
    const uint64_t key = lane_keys(lane, slot->at)[i];
    const float *got = slot->rows + i * lane->dim;
    float most = 0;

    lane->checked++;
    bench_pattern(
            bench_net_pattern(lane->load->args), key, lane->dim, lane->wanted);
    if (lane->turn->wire != RPS_VALUE_I8) {
        return bench_check_rows(&key, 1, lane->dim, got, lane->wanted, error);
    }
    for (uint32_t j = 0; j < lane->dim; j++) {
        most = fmaxf(most, lane->wanted[j]);
    }
    for (uint32_t j = 0; j < lane->dim; j++) {
        if (!(fabsf(got[j] - lane->wanted[j]) <= most / 253)) {
            return bench_check_rows(
                    &key, 1, lane->dim, got, lane->wanted, error);
        }
    }
    return RPS_OK;
}

static rps_status
take(struct bench_lane *lane, struct bench_slot *slot)
{
    const rps_status status = rps_wait(lane->client, slot->ticket, 0);
    const uint64_t now = rps_clock_ns();

    if (status != RPS_OK) {
        return client_failed(lane, status);
    }
    bench_series_add(&lane->micros, (double)(now - slot->start) / 1e3);
    lane->last_ns = now;
    lane->requests++;
    lane->ids += lane->batch;
    slot->answered = lane->ops[slot->at] == BENCH_OP_LOOKUP;
    return slot->answered && lane->load->counts == NULL
                   ? check_answer(lane, slot, now % lane->batch, &lane->error)
                   : RPS_OK;
}

static bool
is_over(const struct bench_lane *lane)
{
    return lane->deadline_ns != 0
                   ? rps_clock_ns() >= lane->deadline_ns
                   : atomic_load_explicit(lane->stop, memory_order_relaxed);
}

void *
bench_lane_run(void *context)
{
    struct bench_lane *lane = context;
    const size_t depth = lane->depth;
    uint64_t started = 0;
    uint64_t taken = 0;

    rps_client_traffic(lane->client, &lane->traffic);
    lane->first_ns = rps_clock_ns();
    do {
        while (lane->status == RPS_OK && started < taken + depth) {
            lane->status = start(lane, &lane->slots[started % depth], started);
            started++;
        }
        if (lane->status == RPS_OK) {
            lane->status = take(lane, &lane->slots[taken++ % depth]);
        }
    } while (lane->status == RPS_OK && !is_over(lane));
    while (lane->status == RPS_OK && taken < started) {
        lane->status = take(lane, &lane->slots[taken++ % depth]);
    }
    if (lane->status == RPS_OK) {
        rps_traffic after;
        rps_client_traffic(lane->client, &after);
        lane->traffic.requests = after.requests - lane->traffic.requests;
        lane->traffic.sent_bytes = after.sent_bytes - lane->traffic.sent_bytes;
        lane->traffic.received_bytes =
                after.received_bytes - lane->traffic.received_bytes;
    }
    return NULL;
}

/* --- checks -------------------------------------------------------------- */

rps_status
bench_lane_check_rows(struct bench_lane *lane, size_t n, const uint32_t *rows,
        struct rps_error *error)
{
    struct bench_load *load = lane->load;
    const enum rps_value pattern = bench_net_pattern(load->args);
    float *out = lane->slots[0].rows;
    uint64_t *keys = lane->slots[0].keys;
    uint32_t *counts = load->scratch;
    const struct bench_past past = {.n = n,
            .keeps = true,
            .rows = rows,
            .counts = counts,
            .starts = lane->starts};
    rps_status status = RPS_OK;

    for (size_t i = 0; i < n; i++) {
        keys[i] = bench_keyset_key(load->set, rows[i]);
        counts[i] = load->counts[rows[i]];
        bench_pattern(
                pattern, keys[i], lane->dim, lane->starts + i * lane->dim);
    }
    status = rps_embedding_lookup(lane->table, n, keys, out);
    if (status != RPS_OK) {
        return rps_fail(error, status, "%s", rps_client_error(lane->client));
    }
    status = bench_model_expect(&load->model, &past, lane->wanted, error);
    lane->checked += n;
    return status == RPS_OK ? bench_check_rows(keys, n, lane->dim, out,
                                      lane->wanted, error)
                            : status;
}

/* The last batch of new keys: each was pushed once. */
static rps_status
check_inserted(struct bench_lane *lane, struct rps_error *error)
{
    struct bench_load *load = lane->load;
    const uint64_t first =
            NEW_ROWS * (lane->index + 1) + (lane->inserted - 1) * lane->batch;
    float *out = lane->slots[0].rows;
    uint64_t *keys = lane->slots[0].keys;
    const struct bench_past past = {.n = lane->batch,
            .rows = lane->rows,
            .counts = load->scratch,
            .starts = lane->starts};
    rps_status status = RPS_OK;

    for (size_t i = 0; i < lane->batch; i++) {
        keys[i] = rps_mix64(first + i);
        load->scratch[i] = 1;
        lane->rows[i] = (uint32_t)i; /* of its gradient; drawn anew next time */
        rps_table_first_value(
                load->model.table, keys[i], lane->starts + i * lane->dim);
    }
    status = rps_embedding_lookup(lane->table, lane->batch, keys, out);
    if (status != RPS_OK) {
        return rps_fail(error, status, "%s", rps_client_error(lane->client));
    }
    status = bench_model_expect(&load->model, &past, lane->wanted, error);
    lane->checked += lane->batch;
    return status == RPS_OK ? bench_check_rows(keys, lane->batch, lane->dim,
                                      out, lane->wanted, error)
                            : status;
}

/* What the slice pushed is in the counts from here on. */
static void
count_pushes(struct bench_lane *lane)
{
    for (size_t at = 0; at < lane->batches; at++) {
        const uint32_t *rows = lane->rows + at * lane->batch;
        for (size_t i = 0; lane->pushes[at] > 0 && i < lane->batch; i++) {
            lane->load->counts[rows[i]] += lane->pushes[at];
        }
    }
}

rps_status
bench_lane_check(struct bench_lane *lane, struct rps_error *error)
{
    const size_t depth = lane->depth;
    rps_status status = RPS_OK;

    if (lane->load->counts == NULL) {
        for (size_t i = 0; i < depth; i++) {
            const struct bench_slot *slot = &lane->slots[i];
            for (size_t j = 0;
                    slot->answered && j < lane->batch && status == RPS_OK;
                    j++) {
                status = check_answer(lane, slot, j, error);
            }
        }
        return status;
    }
    if (lane->is_beside) {
        return RPS_OK; /* its rows are the others' */
    }
    count_pushes(lane);
    for (size_t at = 0, done = 0;
            at < lane->batches && done < CHECK_BATCHES && status == RPS_OK;
            at++) {
        if (lane->ops[at] != BENCH_OP_INSERT) {
            status = bench_lane_check_rows(
                    lane, lane->batch, lane->rows + at * lane->batch, error);
            done++;
        }
    }
    return status == RPS_OK && lane->inserted > 0 ? check_inserted(lane, error)
                                                  : status;
}
