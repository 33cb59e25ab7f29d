/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches whose rows come as often as a measured histogram says. A bin that
 * has less than one row in a batch of this size gives one with all its places.
 */
#include "base/file.h"
#include "base/text.h"
#include "bench/dist.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HISTOGRAM_BYTES_MAX (1u << 20)

static rps_status
bad_line(const struct bench_dist_spec *spec, size_t line,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_INVAL,
            "%s:%zu: want four numbers: uses above, uses up to (or inf), share "
            "of the rows, share of the lookups; at most %u lines of them",
            spec->path, line, BENCH_REUSE_BINS_MAX);
}

/* Uses of a bin's row: what the shares say, or the middle of its bounds where
 * the share of the rows is rounded away. */
static double
uses_of(const double field[4])
{
    const double low = field[0] + 1;
    const double high = isinf(field[1]) ? 2 * field[0] : field[1];

    return sqrt(low * (high > low ? high : low));
}

static bool
parse_fields(char *line, double field[4])
{
    char *rest = NULL;
    size_t count = 0;
    char *word = strtok_r(line, " \t\r", &rest);

    for (; word != NULL && count < 4;
            word = strtok_r(NULL, " \t\r", &rest), count++) {
        if (count == 1 && strcmp(word, "inf") == 0) {
            field[count] = HUGE_VAL;
        } else if (!rps_parse_double(word, &field[count]) || field[count] < 0) {
            return false;
        }
    }
    return count == 4 && word == NULL && field[1] > field[0] && field[2] <= 1 &&
           field[3] <= 1;
}

static rps_status
parse_histogram(
        struct bench_dist_spec *spec, char *text, struct rps_error *error)
{
    char *rest = text;
    size_t number = 0;
    double sum = 0;

    spec->bin_count = 0;
    while (rest != NULL) {
        char *line = strsep(&rest, "\n");
        double field[4] = {0};
        number++;
        if (line[strspn(line, " \t\r")] == '\0' || line[0] == '#') {
            continue;
        }
        if (spec->bin_count == BENCH_REUSE_BINS_MAX ||
                !parse_fields(line, field)) {
            return bad_line(spec, number, error);
        }
        spec->bins[spec->bin_count++] = (struct bench_reuse_bin){
                .uses = uses_of(field), .lookups = field[3]};
        sum += field[3];
    }
    if (sum <= 0) {
        return rps_fail(error, RPS_E_INVAL, "%s: has no lookups", spec->path);
    }
    for (size_t i = 0; i < spec->bin_count; i++) {
        spec->bins[i].lookups /= sum;
    }
    return RPS_OK;
}

rps_status
bench_dist_load(struct bench_dist_spec *spec, struct rps_error *error)
{
    char *text = NULL;
    size_t length = 0;
    rps_status status = RPS_OK;

    if (spec->kind != BENCH_DIST_REUSE) {
        return RPS_OK;
    }
    status = rps_file_read(
            spec->path, HISTOGRAM_BYTES_MAX, &text, &length, error);
    if (status == RPS_OK) {
        status = parse_histogram(spec, text, error);
    } else if (status != RPS_E_NOMEM) {
        status = RPS_E_INVAL;
    }
    free(text);
    return status;
}

/* Uses of the next row in a batch of n. */
static size_t
draw_uses(struct bench_dist *dist, size_t n, double rows)
{
    double left = rps_unit_double(bench_dist_bits(dist)) * rows;
    double uses = 1;

    for (size_t i = 0; i < dist->spec.bin_count; i++) {
        const struct bench_reuse_bin *bin = &dist->spec.bins[i];
        const double places = (double)n * bin->lookups;
        if (places <= 0) {
            continue;
        }
        uses = fmax(fmin(bin->uses, places), 1);
        left -= places / uses;
        if (left < 0) {
            break;
        }
    }
    return (size_t)(uses + rps_unit_double(bench_dist_bits(dist)));
}

static double
expected_rows(const struct bench_dist *dist, size_t n)
{
    double rows = 0;

    for (size_t i = 0; i < dist->spec.bin_count; i++) {
        const struct bench_reuse_bin *bin = &dist->spec.bins[i];
        const double places = (double)n * bin->lookups;
        rows += places / fmax(fmin(bin->uses, places), 1);
    }
    return rows;
}

void
bench_reuse_draw(struct bench_dist *dist, size_t n, uint32_t *rows_out)
{
    const double rows = expected_rows(dist, n);
    size_t at = 0;

    while (at < n) {
        const uint64_t row =
                bench_dist_below(dist, dist->rows) * dist->lanes + dist->lane;
        size_t left = draw_uses(dist, n, rows);
        for (; left > 0 && at < n; left--) {
            rows_out[at++] = (uint32_t)row;
        }
    }
    for (size_t i = n; i > 1; i--) {
        const size_t other = bench_dist_below(dist, i);
        const uint32_t row = rows_out[i - 1];
        rows_out[i - 1] = rows_out[other];
        rows_out[other] = row;
    }
}
