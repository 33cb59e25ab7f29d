/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/dist.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DISTINCT_TRIES 16u /* draws before the next free row is taken */

bool
bench_dist_parse(const char *text, struct bench_dist_spec *spec)
{
    *spec = (struct bench_dist_spec){.kind = BENCH_DIST_UNIFORM};
    if (strcmp(text, "uniform") == 0) {
        return true;
    }
    if (strcmp(text, "seq") == 0) {
        spec->kind = BENCH_DIST_SEQ;
        return true;
    }
    if (strncmp(text, "zipf:", 5) == 0) {
        spec->kind = BENCH_DIST_ZIPF;
        return rps_parse_double(text + 5, &spec->skew) && spec->skew > 0 &&
               spec->skew <= 10;
    }
    if (strncmp(text, "hot:", 4) == 0) {
        spec->kind = BENCH_DIST_HOT;
        return rps_parse_double(text + 4, &spec->percent) &&
               spec->percent >= 0 && spec->percent <= 100;
    }
    if (strncmp(text, "trace:", 6) == 0) {
        spec->kind = BENCH_DIST_TRACE;
        spec->path = text + 6;
        return text[6] != '\0';
    }
    if (strncmp(text, "reuse:", 6) == 0) {
        spec->kind = BENCH_DIST_REUSE;
        spec->path = text + 6;
        return text[6] != '\0';
    }
    return false;
}

/*
 * Zipf by rejection-inversion (Hörmann and Derflinger 1996): H is the
 * integral of h(x) = x^-s, and x = H^-1(u) is accepted as rank round(x) if it
 * lies under the histogram.
 */
static double
zipf_integral(double x, double skew)
{
    const double log_x = log(x);

    return fabs(1 - skew) < 1e-9 ? log_x
                                 : expm1((1 - skew) * log_x) / (1 - skew);
}

static double
zipf_inverse(double u, double skew)
{
    return fabs(1 - skew) < 1e-9 ? exp(u)
                                 : exp(log1p(u * (1 - skew)) / (1 - skew));
}

static uint64_t
gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void
zipf_init(struct bench_dist *dist)
{
    const double skew = dist->spec.skew;

    dist->zipf_low = zipf_integral(1.5, skew) - 1;
    dist->zipf_high = zipf_integral((double)dist->rows + 0.5, skew);
    dist->zipf_cut =
            2 - zipf_inverse(zipf_integral(2.5, skew) - pow(2, -skew), skew);
    dist->scramble = (uint64_t)((double)dist->rows * 0.6180339887) | 1;
    while (gcd(dist->scramble, dist->rows) != 1) {
        dist->scramble += 2;
    }
}

uint64_t
bench_dist_bits(struct bench_dist *dist)
{
    return rps_mix64(dist->seed ^ rps_mix64(dist->draws++));
}

/* Rank 0 is the most frequent. */
static uint64_t
draw_zipf_rank(struct bench_dist *dist)
{
    const double skew = dist->spec.skew;

    for (;;) {
        const double u =
                dist->zipf_high + rps_unit_double(bench_dist_bits(dist)) *
                                          (dist->zipf_low - dist->zipf_high);
        const double x = zipf_inverse(u, skew);
        const double k = fmin(fmax(floor(x + 0.5), 1), (double)dist->rows);
        if (k - x <= dist->zipf_cut ||
                u >= zipf_integral(k + 0.5, skew) - pow(k, -skew)) {
            return (uint64_t)k - 1;
        }
    }
}

/* Uniform in [0, n), n < 2^32. */
uint64_t
bench_dist_below(struct bench_dist *dist, uint64_t n)
{
    return (bench_dist_bits(dist) >> 32) * n >> 32;
}

static uint64_t
draw_local(struct bench_dist *dist)
{
    switch (dist->spec.kind) {
    case BENCH_DIST_ZIPF:
        return draw_zipf_rank(dist) * dist->scramble % dist->rows;
    case BENCH_DIST_HOT:
        return dist->rows == 1 ? 0 : 1 + bench_dist_below(dist, dist->rows - 1);
    case BENCH_DIST_SEQ:
        return dist->next++ % dist->rows;
    case BENCH_DIST_TRACE:
        return dist->set->trace[dist->next++ % dist->set->trace_count] %
               dist->rows;
    case BENCH_DIST_REUSE: /* a push's distinct rows: any */
    case BENCH_DIST_UNIFORM:
    default:
        return bench_dist_below(dist, dist->rows);
    }
}

bool
bench_dist_init(struct bench_dist *dist, const struct bench_dist_spec *spec,
        const struct bench_keyset *set, uint64_t seed, size_t batch)
{
    size_t places = 16;

    while (places < 2 * batch) {
        places *= 2;
    }
    *dist = (struct bench_dist){.spec = *spec,
            .set = set,
            .seed = rps_mix64(seed),
            .seen_mask = places - 1};
    dist->seen = calloc(places, sizeof(*dist->seen));
    bench_dist_limit(dist, 1, 0);
    return dist->seen != NULL;
}

void
bench_dist_limit(struct bench_dist *dist, uint64_t lanes, uint64_t lane)
{
    dist->lanes = lanes;
    dist->lane = lane;
    dist->rows = (dist->set->rows - lane + lanes - 1) / lanes;
    if (dist->spec.kind == BENCH_DIST_ZIPF) {
        zipf_init(dist);
    }
}

void
bench_dist_finish(struct bench_dist *dist)
{
    free(dist->seen);
    dist->seen = NULL;
}

/* False: it was there already. */
static bool
note_seen(struct bench_dist *dist, uint64_t row)
{
    const uint32_t tag = (uint32_t)row + 1;
    size_t at = rps_mix64(row) & dist->seen_mask;

    for (; dist->seen[at] != 0; at = (at + 1) & dist->seen_mask) {
        if (dist->seen[at] == tag) {
            return false;
        }
    }
    dist->seen[at] = tag;
    return true;
}

static uint64_t
draw_unseen(struct bench_dist *dist)
{
    const uint64_t lowest = dist->spec.kind == BENCH_DIST_HOT ? 1 : 0;
    uint64_t row = 0;

    for (unsigned i = 0; i < DISTINCT_TRIES; i++) {
        row = draw_local(dist);
        if (note_seen(dist, row)) {
            return row;
        }
    }
    do {
        row = row + 1 < dist->rows ? row + 1 : lowest;
    } while (!note_seen(dist, row));
    return row;
}

size_t
bench_dist_hot_places(const struct bench_dist *dist, size_t n)
{
    return dist->spec.kind != BENCH_DIST_HOT
                   ? 0
                   : (size_t)llround((double)n * dist->spec.percent / 100);
}

bool
bench_dist_is_hot(const struct bench_dist *dist, size_t n, size_t i)
{
    const size_t hot = bench_dist_hot_places(dist, n);

    return i * hot / n != (i + 1) * hot / n;
}

void
bench_dist_draw(
        struct bench_dist *dist, size_t n, bool distinct, uint32_t *rows_out)
{
    if (dist->spec.kind == BENCH_DIST_REUSE && !distinct) {
        bench_reuse_draw(dist, n, rows_out);
        return;
    }
    if (distinct) {
        memset(dist->seen, 0, (dist->seen_mask + 1) * sizeof(*dist->seen));
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t row = 0;
        if (!bench_dist_is_hot(dist, n, i)) {
            row = distinct ? draw_unseen(dist) : draw_local(dist);
        }
        rows_out[i] = (uint32_t)(row * dist->lanes + dist->lane);
    }
}
