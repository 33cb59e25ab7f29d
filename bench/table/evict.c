/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nine rows of ten grow cold and are evicted in one pass: how much memory the
 * process has then, and whether as many new rows fit where they were. Which
 * rows stay is scattered over the table, so nothing falls free by luck.
 */
#include "bench/check.h"
#include "bench/memory.h"
#include "bench/print.h"
#include "bench/table/parts.h"

#define FILL_KEYS  4096u
#define KEPT_OF    10u  /* row r stays if r mod 10 == 0 */
#define COLD_STEPS 100u /* idle for longer: evicted */
#define PUSH_STEP  1000u
#define NEW_KEYS   (1ull << 40) /* numbers of the refill's keys start here */

struct evicting {
    const struct bench_keyset *set;
    struct bench_report *report;
    rps_table_spec spec;
    struct rps_table *table;
    struct bench_model model;
    struct bench_batch batch;
};

/* The next rows that stay, or that go, from *at on. False: none is left. */
static bool
next_rows(struct evicting *e, bool kept, uint64_t *at)
{
    struct bench_batch *batch = &e->batch;

    for (batch->n = 0; *at < e->set->rows && batch->n < FILL_KEYS; ++*at) {
        if ((*at % KEPT_OF == 0) == kept) {
            batch->rows[batch->n] = (uint32_t)*at;
            batch->keys[batch->n] = bench_keyset_key(e->set, *at);
            bench_gradient(*at, e->spec.dim,
                    batch->gradients + batch->n * e->spec.dim);
            batch->n++;
        }
    }
    return batch->n > 0;
}

static rps_status
push_kept(struct evicting *e)
{
    struct rps_update update = bench_update;
    rps_status status = RPS_OK;

    update.step = PUSH_STEP;
    for (uint64_t at = 0; status == RPS_OK && next_rows(e, true, &at);) {
        const struct rps_contribution contribution = {.count = e->batch.n,
                .keys = e->batch.keys,
                .gradients = e->batch.gradients};
        struct rps_apply_report applied;
        status = rps_table_apply(e->table, &update, &contribution, 1, &applied);
    }
    return status;
}

/* Rows that stayed: one push after the pattern. Those that went: their first
 * value, as if they had never been. */
static rps_status
check_rows(struct evicting *e, bool kept)
{
    struct bench_batch *batch = &e->batch;
    const uint32_t dim = e->spec.dim;
    struct rps_error *error = &e->report->error;
    rps_status status = RPS_OK;

    for (uint64_t at = 0; status == RPS_OK && next_rows(e, kept, &at);) {
        const struct rps_read read = {.count = batch->n, .keys = batch->keys};
        const struct bench_past past = {.n = batch->n,
                .rows = batch->rows,
                .counts = batch->counts,
                .starts = batch->starts};
        for (size_t i = 0; i < batch->n; i++) {
            batch->counts[i] = kept;
            if (kept) {
                bench_pattern(e->spec.value_dtype, batch->keys[i], dim,
                        batch->starts + i * dim);
            } else {
                rps_table_first_value(
                        e->table, batch->keys[i], batch->starts + i * dim);
            }
        }
        rps_table_lookup(e->table, &read, batch->out, dim * sizeof(float));
        status = bench_model_expect(&e->model, &past, batch->wanted, error);
        if (status == RPS_OK) {
            status = bench_check_rows(batch->keys, batch->n, dim, batch->out,
                    batch->wanted, error);
        }
        e->report->checked_answers += (double)batch->n;
    }
    return status;
}

/* As many new keys as were evicted. */
static rps_status
refill(struct evicting *e, uint64_t n)
{
    struct bench_batch *batch = &e->batch;
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < n && status == RPS_OK; at += batch->n) {
        batch->n = n - at < FILL_KEYS ? (size_t)(n - at) : FILL_KEYS;
        for (size_t i = 0; i < batch->n; i++) {
            batch->keys[i] = rps_mix64(NEW_KEYS + at + i);
            bench_pattern(e->spec.value_dtype, batch->keys[i], e->spec.dim,
                    batch->starts + i * e->spec.dim);
        }
        status = rps_table_assign(e->table, batch->n, batch->keys,
                batch->starts, NULL, NULL, &e->report->error);
    }
    return status;
}

static rps_status
check_count(struct evicting *e, uint64_t evicted)
{
    const uint64_t kept = (e->set->rows + KEPT_OF - 1) / KEPT_OF;
    struct rps_table_stats stats;

    rps_table_stats_of(e->table, &stats);
    if (stats.rows == kept && evicted == e->set->rows - kept) {
        return RPS_OK;
    }
    return rps_fail(&e->report->error, RPS_E_CORRUPT,
            "wrong answer: %llu rows stay and %llu were evicted, not %llu "
            "and %llu",
            (unsigned long long)stats.rows, (unsigned long long)evicted,
            (unsigned long long)kept,
            (unsigned long long)(e->set->rows - kept));
}

static rps_status
run(struct evicting *e, double before)
{
    const double payload =
            (double)e->set->rows * (double)bench_payload_bytes(&e->spec);
    const struct rps_now now = {.step = PUSH_STEP + 1};
    struct rps_evict_report evicted = {0};
    double full = 0;
    rps_status status = push_kept(e);

    if (status != RPS_OK) {
        return status;
    }
    full = (double)bench_rss_bytes() - before;
    rps_table_evict(e->table, now, &evicted);
    e->report->evict_rss_ratio = ((double)bench_rss_bytes() - before) / payload;
    status = check_count(e, evicted.cold);
    if (status == RPS_OK) {
        status = check_rows(e, true);
    }
    if (status == RPS_OK) {
        status = check_rows(e, false);
    }
    if (status == RPS_OK) {
        status = refill(e, evicted.cold);
    }
    e->report->evict_reuse_ratio = ((double)bench_rss_bytes() - before) / full;
    return status;
}

rps_status
bench_part_evict(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    struct evicting e = {.set = set, .report = report};
    rps_table_spec plain;
    double before = 0;
    rps_status status = bench_batch_init(&e.batch, FILL_KEYS, args->dims[0]);

    bench_progress("evicting nine rows of ten");
    bench_table_spec(args, 0, &plain);
    e.spec = plain;
    e.spec.max_cold_steps = COLD_STEPS;
    if (status == RPS_OK) {
        status = bench_model_init(
                &e.model, &plain, FILL_KEYS, 0, 0, &report->error);
    }
    before = (double)bench_rss_bytes();
    if (status == RPS_OK) {
        status = rps_table_create(&e.table, &e.spec, 0, &report->error);
    }
    if (status == RPS_OK) {
        status = bench_fill(
                e.table, set, 0, set->rows, &e.batch, &report->error);
    }
    if (status == RPS_OK) {
        status = run(&e, before);
    }
    rps_table_destroy(e.table);
    bench_model_finish(&e.model);
    bench_batch_finish(&e.batch);
    return status;
}
