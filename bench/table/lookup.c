/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups beside what they are compared with, batch by batch: each side gets
 * fresh random places of its own, made before its clock starts, and copies to
 * the same buffer. Sides take turns in going first. A side with variants
 * (prefetch distances, forms of a peer) first finds its best.
 */
#include "base/clock.h"
#include "bench/check.h"
#include "bench/print.h"
#include "bench/series.h"
#include "bench/table/parts.h"
#include "bench/table/peers.h"
#include "bench/table/warm.h"

#include <math.h>
#include <stdio.h>

#define TRIAL_BATCHES 15u /* of each variant */
#define BATCHES_MIN   15u

enum side {
    SIDE_LINES,
    SIDE_ROWS,
    SIDE_TABLE,
    SIDE_ABSL,
    SIDE_CUCKOO,
    SIDE_COUNT
};

struct sides {
    struct bench_fixture *fixture;
    struct bench_batch batch;
    struct bench_dist dist;
    struct bench_dist line_dist;
    struct bench_keyset line_set; /* as many "rows" as there are lines */
    struct bench_peer *peers[SIDE_COUNT];
    enum bench_peer_kind kinds[SIDE_COUNT];
    unsigned distances[SIDE_COUNT];
    struct bench_series ns[SIDE_COUNT];
};

static void
prepare(struct sides *sides, enum side side)
{
    const struct bench_arrays *arrays = &sides->fixture->arrays;
    struct bench_batch *batch = &sides->batch;

    if (side == SIDE_LINES) {
        bench_dist_draw(&sides->line_dist, batch->n, false, batch->rows);
        for (size_t i = 0; i < batch->n; i++) {
            batch->addresses[i] =
                    arrays->lines + batch->rows[i] * (size_t)BENCH_LINE_BYTES;
        }
        return;
    }
    bench_dist_draw(&sides->dist, batch->n, false, batch->rows);
    bench_batch_keys(sides->fixture, batch);
    for (size_t i = 0; i < batch->n; i++) {
        batch->addresses[i] = arrays->rows + batch->rows[i] * arrays->row_bytes;
    }
}

/* Returns ns. */
static uint64_t
time_one(struct sides *sides, enum side side)
{
    const struct bench_fixture *fixture = sides->fixture;
    const struct bench_batch *batch = &sides->batch;
    const struct rps_read read = {.count = batch->n, .keys = batch->keys};
    const unsigned distance = sides->distances[side];
    const uint64_t start = rps_clock_ns();

    switch (side) {
    case SIDE_LINES:
        bench_gather_lines(batch->addresses, batch->n, distance, batch->sums);
        break;
    case SIDE_ROWS:
        bench_gather_rows(batch->addresses, batch->n, fixture->arrays.row_bytes,
                distance, batch->out);
        break;
    case SIDE_TABLE:
        rps_table_lookup(fixture->table, &read, batch->out,
                fixture->dim * sizeof(float));
        break;
    case SIDE_ABSL:
    case SIDE_CUCKOO:
    case SIDE_COUNT:
        bench_peer_lookup(sides->peers[side], batch->n, batch->keys, distance,
                (char *)batch->out);
        break;
    }
    return rps_clock_ns() - start;
}

static rps_status
check_sums(const struct bench_batch *batch, struct rps_error *error)
{
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->sums[i] != bench_line_sum(batch->rows[i])) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "wrong answer: line %u of the bare gather", batch->rows[i]);
        }
    }
    return RPS_OK;
}

static rps_status
check(struct sides *sides, enum side side)
{
    static const char *const names[] = {
            NULL, "the bare gather", NULL, "absl", "libcuckoo"};
    struct bench_fixture *fixture = sides->fixture;
    const struct bench_batch *batch = &sides->batch;
    const enum rps_value value = fixture->spec.value_dtype;
    struct rps_error *error = &fixture->report->error;

    fixture->report->checked_answers += (double)batch->n;
    if (side == SIDE_LINES) {
        return check_sums(batch, error);
    }
    if (side == SIDE_TABLE) {
        return bench_check_pattern(value, batch->keys, batch->n, fixture->dim,
                batch->out, batch->wanted, error);
    }
    return bench_check_stored(value, batch->keys, batch->n, fixture->dim,
            batch->out, batch->wanted, names[side], error);
}

static rps_status
measure(struct sides *sides, enum side side, struct bench_series *into)
{
    prepare(sides, side);
    /* what was copied before must not pass for an answer */
    for (size_t i = 0; i < sides->batch.n * sides->fixture->dim; i++) {
        sides->batch.out[i] = -1.0f;
    }
    bench_series_add(into, (double)time_one(sides, side));
    return check(sides, side);
}

/* The distance with the smallest median, which *best_out takes. libcuckoo
 * cannot prefetch. */
static rps_status
choose_distance(struct sides *sides, enum side side, double *best_out)
{
    const size_t variants = side == SIDE_CUCKOO ? 1 : BENCH_DISTANCES;
    unsigned best = 0;
    rps_status status = RPS_OK;

    *best_out = (double)INFINITY;
    for (size_t v = 0; v < variants && status == RPS_OK; v++) {
        struct bench_series trial = {0};
        sides->distances[side] = bench_distances[v];
        for (unsigned i = 0; i < TRIAL_BATCHES && status == RPS_OK; i++) {
            status = measure(sides, side, &trial);
        }
        if (bench_series_median(&trial) < *best_out) {
            *best_out = bench_series_median(&trial);
            best = bench_distances[v];
        }
        bench_series_finish(&trial);
    }
    sides->distances[side] = best;
    return status;
}

static uint64_t
key_at(const void *context, uint64_t row)
{
    return bench_keyset_key(context, row);
}

/* Build each form of a peer in turn, and keep the fastest. */
static rps_status
choose_peer(struct sides *sides, enum side side, enum bench_peer_kind first)
{
    const struct bench_arrays *arrays = &sides->fixture->arrays;
    const struct bench_peer_rows rows = {.key_at = key_at,
            .context = sides->fixture->set,
            .row_count = arrays->row_count,
            .rows = arrays->rows,
            .row_bytes = arrays->row_bytes};
    struct bench_peer *best = NULL;
    unsigned best_distance = 0;
    double best_ns = (double)INFINITY;
    rps_status status = RPS_OK;

    for (int i = 0; i < 2 && status == RPS_OK; i++) {
        const enum bench_peer_kind kind = (enum bench_peer_kind)(first + i);
        double ns = 0;
        if (!bench_peer_has(kind, arrays->row_bytes)) {
            continue;
        }
        bench_progress("filling %s", bench_peer_str(kind));
        sides->peers[side] = bench_peer_create(kind, &rows);
        if (sides->peers[side] == NULL) {
            bench_progress("no memory for %s", bench_peer_str(kind));
            continue;
        }
        status = bench_warm_peer(sides->fixture, sides->peers[side]);
        if (status == RPS_OK) {
            status = choose_distance(sides, side, &ns);
        }
        bench_progress("%s: %.1f ns a key at prefetch %u", bench_peer_str(kind),
                ns / (double)sides->batch.n, sides->distances[side]);
        if (ns < best_ns) {
            bench_peer_destroy(best);
            best = sides->peers[side];
            best_ns = ns;
            best_distance = sides->distances[side];
            sides->kinds[side] = kind;
        } else {
            bench_peer_destroy(sides->peers[side]);
        }
    }
    sides->peers[side] = best;
    sides->distances[side] = best_distance;
    return status;
}

static rps_status
run(struct sides *sides)
{
    const double ns_wanted = sides->fixture->args->seconds * 1e9;
    const uint64_t start = rps_clock_ns();
    double ns = 0;
    rps_status status = RPS_OK;

    for (unsigned batch = 0;
            status == RPS_OK &&
            (batch < BATCHES_MIN ||
                    (ns < ns_wanted && (double)(rps_clock_ns() - start) <
                                               BENCH_WALL_MOST * ns_wanted));
            batch++) {
        for (unsigned i = 0; i < SIDE_COUNT && status == RPS_OK; i++) {
            const enum side side = (enum side)((batch + i) % SIDE_COUNT);
            if (side < SIDE_ABSL || sides->peers[side] != NULL) {
                status = measure(sides, side, &sides->ns[side]);
            }
        }
        ns += sides->ns[SIDE_TABLE].values[batch];
    }
    return status;
}

static double
ns_a_key(const struct sides *sides, enum side side)
{
    return bench_series_median(&sides->ns[side]) / (double)sides->batch.n;
}

static void
fill_report(struct sides *sides)
{
    struct bench_report *report = sides->fixture->report;
    const struct bench_series *table = &sides->ns[SIDE_TABLE];
    struct bench_series limit = {0};

    for (size_t i = 0; i < table->count; i++) {
        bench_series_add(&limit, sides->ns[SIDE_LINES].values[i] +
                                         sides->ns[SIDE_ROWS].values[i]);
    }
    report->lookup_ns = ns_a_key(sides, SIDE_TABLE);
    report->index_gather_ns = ns_a_key(sides, SIDE_LINES);
    report->row_gather_ns = ns_a_key(sides, SIDE_ROWS);
    report->absl_ns = ns_a_key(sides, SIDE_ABSL);
    report->libcuckoo_ns = ns_a_key(sides, SIDE_CUCKOO);
    report->lookup_over_limit = bench_median_ratio(table, &limit);
    report->lookup_vs_absl = bench_median_ratio(&sides->ns[SIDE_ABSL], table);
    report->lookup_vs_libcuckoo =
            bench_median_ratio(&sides->ns[SIDE_CUCKOO], table);
    report->index_distance = sides->distances[SIDE_LINES];
    report->row_distance = sides->distances[SIDE_ROWS];
    report->absl_distance = sides->distances[SIDE_ABSL];
    if (sides->peers[SIDE_ABSL] != NULL) {
        snprintf(report->absl, sizeof(report->absl), "%s",
                bench_peer_str(sides->kinds[SIDE_ABSL]));
    }
    if (sides->peers[SIDE_CUCKOO] != NULL) {
        snprintf(report->libcuckoo, sizeof(report->libcuckoo), "%s",
                bench_peer_str(sides->kinds[SIDE_CUCKOO]));
    }
    bench_series_finish(&limit);
}

static rps_status
choose_all(struct sides *sides)
{
    double ns = 0;
    rps_status status = choose_distance(sides, SIDE_LINES, &ns);

    if (status == RPS_OK) {
        status = choose_distance(sides, SIDE_ROWS, &ns);
    }
    if (status == RPS_OK && sides->fixture->args->peers) {
        status = choose_peer(sides, SIDE_ABSL, BENCH_PEER_ABSL);
    }
    if (status == RPS_OK && sides->fixture->args->peers) {
        status = choose_peer(sides, SIDE_CUCKOO, BENCH_PEER_LIBCUCKOO);
    }
    return status;
}

rps_status
bench_part_lookup(struct bench_fixture *fixture)
{
    const struct bench_table_args *args = fixture->args;
    const struct bench_dist_spec uniform = {.kind = BENCH_DIST_UNIFORM};
    struct sides sides = {.fixture = fixture,
            .line_set = {.rows = fixture->arrays.line_count}};
    rps_status status =
            bench_batch_init(&sides.batch, args->batch, fixture->dim);

    if (status == RPS_OK &&
            (!bench_dist_init(&sides.dist, &args->dist, fixture->set,
                     args->seed, args->batch) ||
                    !bench_dist_init(&sides.line_dist, &uniform,
                            &sides.line_set, args->seed, args->batch))) {
        status = RPS_E_NOMEM;
    }
    if (status == RPS_OK) {
        status = choose_all(&sides);
    }
    if (status == RPS_OK) {
        bench_progress("timing lookups");
        status = run(&sides);
    }
    if (status == RPS_OK) {
        fill_report(&sides);
    }
    for (unsigned i = 0; i < SIDE_COUNT; i++) {
        if (sides.peers[i] != NULL) {
            bench_peer_destroy(sides.peers[i]);
        }
        bench_series_finish(&sides.ns[i]);
    }
    bench_dist_finish(&sides.dist);
    bench_dist_finish(&sides.line_dist);
    bench_batch_finish(&sides.batch);
    return status;
}
