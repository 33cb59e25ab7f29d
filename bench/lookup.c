/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups of random rows, batch by batch, each beside a bare gather of as
 * many rows from one array: the ratio holds when the machine's speed drifts.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

struct lookup_state {
    uint64_t *keys;  /* [batch] */
    uint64_t *order; /* [batch] row numbers of the bare gather */
    float *rows;     /* [batch][dim] */
    float *bare;     /* [rows][dim] what the bare gather reads */
    uint64_t draws;
};

static rps_status
state_init(struct lookup_state *state, const struct bench_args *args)
{
    state->keys = calloc(args->batch, sizeof(*state->keys));
    state->order = calloc(args->batch, sizeof(*state->order));
    state->rows = calloc(args->batch * args->dim, sizeof(*state->rows));
    state->bare =
            args->tcp ? NULL
                      : calloc(args->rows * args->dim, sizeof(*state->bare));
    if (state->keys == NULL || state->order == NULL || state->rows == NULL ||
            (!args->tcp && state->bare == NULL)) {
        return RPS_E_NOMEM;
    }
    for (uint64_t i = 0; !args->tcp && i < args->rows * args->dim; i++) {
        state->bare[i] = (float)i; /* touched: no page faults in the timing */
    }
    return RPS_OK;
}

static void
state_finish(struct lookup_state *state)
{
    free(state->keys);
    free(state->order);
    free(state->rows);
    free(state->bare);
}

static void
draw_keys(struct lookup_state *state, const struct bench_args *args)
{
    for (size_t i = 0; i < args->batch; i++) {
        state->order[i] = rps_mix64(state->draws++) % args->rows;
        state->keys[i] = bench_key(state->order[i]);
    }
}

static uint64_t
bare_gather(struct lookup_state *state, const struct bench_args *args)
{
    const uint64_t start = rps_clock_ns();

    for (size_t i = 0; i < args->batch; i++) {
        if (i + 16 < args->batch) {
            __builtin_prefetch(state->bare + state->order[i + 16] * args->dim);
        }
        memcpy(state->rows + i * args->dim,
                state->bare + state->order[i] * args->dim,
                args->dim * sizeof(float));
    }
    return rps_clock_ns() - start;
}

static rps_status
check_rows(const struct lookup_state *state, const struct bench_args *args,
        struct rps_error *error)
{
    for (size_t i = 0; i < args->batch; i++) {
        for (uint32_t j = 0; j < args->dim; j++) {
            const float wanted = bench_value(state->keys[i], j);
            const float got = state->rows[i * args->dim + j];
            if (got != wanted) {
                return rps_fail(error, RPS_E_CORRUPT,
                        "wrong answer: key %llu column %u is %.9g, not %.9g",
                        (unsigned long long)state->keys[i], j, (double)got,
                        (double)wanted);
            }
        }
    }
    return RPS_OK;
}

static rps_status
one_batch(struct bench_target *target, const struct bench_args *args,
        struct lookup_state *state, struct bench_result *result,
        struct rps_error *error)
{
    uint64_t start = 0;
    rps_status status = RPS_OK;

    draw_keys(state, args);
    if (state->bare != NULL) {
        result->bare_ns += bare_gather(state, args);
    }
    memset(state->rows, 0xff, args->batch * args->dim * sizeof(float));
    start = rps_clock_ns();
    status = rps_embedding_lookup(
            target->table, args->batch, state->keys, state->rows);
    bench_sample(result, rps_clock_ns() - start, args->batch);
    if (status != RPS_OK) {
        return rps_fail(error, status, "%s", rps_client_error(target->client));
    }
    return check_rows(state, args, error);
}

rps_status
bench_lookup(struct bench_target *target, const struct bench_args *args,
        struct bench_result *result, struct rps_error *error)
{
    const uint64_t ns_wanted = (uint64_t)(args->seconds * 1e9);
    struct lookup_state state = {.draws = 1};
    rps_status status = state_init(&state, args);

    if (status != RPS_OK) {
        rps_fail(error, status, "out of memory");
    }
    while (status == RPS_OK && result->ns < ns_wanted) {
        status = one_batch(target, args, &state, result, error);
    }
    state_finish(&state);
    return status;
}
