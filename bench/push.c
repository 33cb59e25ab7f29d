/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes of distinct random rows: sgd with learning rate 1 and gradient -1
 * adds one to each element, so that the rows count the pushes; every row is
 * compared with its count at the end.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_ROWS 4096u

struct push_state {
    uint64_t *keys;   /* [batch] */
    float *gradients; /* [batch][dim], all -1 */
    uint32_t *counts; /* [rows] pushes of row i */
    uint64_t at;      /* next row; a stride coprime to rows keeps a batch
                         distinct */
    uint64_t stride;
};

static uint64_t
stride_for(uint64_t rows)
{
    uint64_t stride = rows / 3 | 1;

    for (;; stride += 2) {
        uint64_t a = rows;
        uint64_t b = stride;
        while (b != 0) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) {
            return stride;
        }
    }
}

static rps_status
state_init(struct push_state *state, const struct bench_args *args)
{
    state->keys = calloc(args->batch, sizeof(*state->keys));
    state->gradients =
            calloc(args->batch * args->dim, sizeof(*state->gradients));
    state->counts = calloc(args->rows, sizeof(*state->counts));
    state->stride = stride_for(args->rows);
    if (state->keys == NULL || state->gradients == NULL ||
            state->counts == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < args->batch * args->dim; i++) {
        state->gradients[i] = -1.0f;
    }
    return RPS_OK;
}

static void
state_finish(struct push_state *state)
{
    free(state->keys);
    free(state->gradients);
    free(state->counts);
}

static rps_status
one_batch(struct bench_target *target, const struct bench_args *args,
        struct push_state *state, struct bench_result *result,
        struct rps_error *error)
{
    uint64_t start = 0;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < args->batch; i++) {
        state->keys[i] = bench_key(state->at);
        state->counts[state->at]++;
        state->at = (state->at + state->stride) % args->rows;
    }
    start = rps_clock_ns();
    status = rps_push_gradients(target->table, result->batches + 1, args->batch,
            state->keys, state->gradients, 1.0f);
    bench_sample(result, rps_clock_ns() - start, args->batch);
    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "%s",
                                      rps_client_error(target->client));
}

/* Exact in float: values are below 2^24 and counts small. */
static rps_status
check_rows(struct bench_target *target, const struct bench_args *args,
        const struct push_state *state, uint64_t first, size_t n,
        struct rps_error *error)
{
    uint64_t keys[CHECK_ROWS];
    float *rows = malloc(n * args->dim * sizeof(*rows));
    rps_status status = rows == NULL ? RPS_E_NOMEM : RPS_OK;

    for (size_t i = 0; i < n; i++) {
        keys[i] = bench_key(first + i);
    }
    if (status == RPS_OK) {
        status = rps_embedding_lookup(target->table, n, keys, rows);
    }
    for (size_t i = 0; i < n * args->dim && status == RPS_OK; i++) {
        const uint64_t key = keys[i / args->dim];
        const float start = bench_value(key, (uint32_t)(i % args->dim));
        float wanted = start;
        for (uint32_t k = 0; k < state->counts[first + i / args->dim]; k++) {
            wanted += 1.0f;
        }
        if (rows[i] != wanted) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "wrong answer: key %llu is %.9g after %u pushes of +1 "
                    "to %.9g",
                    (unsigned long long)key, (double)rows[i],
                    state->counts[first + i / args->dim], (double)start);
        }
    }
    free(rows);
    return status;
}

rps_status
bench_push(struct bench_target *target, const struct bench_args *args,
        struct bench_result *result, struct rps_error *error)
{
    const uint64_t ns_wanted = (uint64_t)(args->seconds * 1e9);
    struct push_state state = {.at = 0};
    rps_status status = state_init(&state, args);

    if (status != RPS_OK) {
        rps_fail(error, status, "out of memory");
    }
    while (status == RPS_OK && result->ns < ns_wanted) {
        status = one_batch(target, args, &state, result, error);
    }
    for (uint64_t at = 0; at < args->rows && status == RPS_OK;
            at += CHECK_ROWS) {
        const uint64_t left = args->rows - at;
        status = check_rows(target, args, &state, at,
                left < CHECK_ROWS ? (size_t)left : CHECK_ROWS, error);
    }
    state_finish(&state);
    return status;
}
