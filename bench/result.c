/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

void
bench_sample(struct bench_result *result, uint64_t ns, size_t keys)
{
    result->ns += ns;
    result->keys += keys;
    result->batches++;
    if (result->samples == NULL) {
        result->samples = calloc(BENCH_SAMPLES_MAX, sizeof(uint64_t));
    }
    if (result->samples != NULL && result->sample_count < BENCH_SAMPLES_MAX) {
        result->samples[result->sample_count++] = ns;
    }
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* Nearest rank; samples are sorted. */
static double
percentile_us(const struct bench_result *result, double share)
{
    size_t at = (size_t)(share * (double)result->sample_count);

    if (result->sample_count == 0) {
        return 0;
    }
    if (at >= result->sample_count) {
        at = result->sample_count - 1;
    }
    return (double)result->samples[at] / 1e3;
}

static json_t *
result_json(const struct bench_args *args, const struct bench_result *result)
{
    const double seconds = (double)result->ns / 1e9;
    const double keys = (double)result->keys;
    json_t *object = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:I}",
            "name", result->name, "transport", result->transport,
            "rows_per_second", keys / seconds, "ns_per_row",
            (double)result->ns / keys, "row_bytes_per_second",
            keys * args->dim * 4 / seconds, "p50_us",
            percentile_us(result, 0.5), "p99_us", percentile_us(result, 0.99),
            "p999_us", percentile_us(result, 0.999), "batches",
            (json_int_t)result->batches);

    if (result->bare_ns > 0) {
        json_object_set_new(object, "times_bare_gather",
                json_real((double)result->ns / (double)result->bare_ns));
    }
    return object;
}

static void
print_json(const struct bench_args *args, const struct bench_result *results,
        size_t count)
{
    json_t *list = json_array();
    json_t *object = NULL;
    char *text = NULL;

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, result_json(args, &results[i]));
    }
    object = json_pack("{s:I, s:i, s:I, s:f, s:o}", "rows",
            (json_int_t)args->rows, "dim", (int)args->dim, "batch",
            (json_int_t)args->batch, "seconds", args->seconds, "results", list);
    text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (text != NULL) {
        printf("%s\n", text);
    }
    free(text);
    json_decref(object);
}

static void
print_line(const struct bench_args *args, const struct bench_result *result)
{
    const double seconds = (double)result->ns / 1e9;
    const double rate = (double)result->keys / seconds;

    printf("%-7s %-6s %9.3f M rows/s %7.1f ns/row %7.2f GB/s  p50 %8.1f us  "
           "p99 %8.1f us",
            result->name, result->transport, rate / 1e6, 1e9 / rate,
            rate * args->dim * 4 / 1e9, percentile_us(result, 0.5),
            percentile_us(result, 0.99));
    if (result->bare_ns > 0) {
        printf("  %.2fx a bare gather",
                (double)result->ns / (double)result->bare_ns);
    }
    printf("\n");
}

void
bench_print(const struct bench_args *args, const struct bench_result *results,
        size_t count, bool json)
{
    for (size_t i = 0; i < count; i++) {
        if (results[i].sample_count > 0) {
            qsort(results[i].samples, results[i].sample_count, sizeof(uint64_t),
                    compare_u64);
        }
    }
    if (json) {
        print_json(args, results, count);
        return;
    }
    printf("%llu rows, dim %u, batch %zu; every answer was checked\n",
            (unsigned long long)args->rows, args->dim, args->batch);
    for (size_t i = 0; i < count; i++) {
        print_line(args, &results[i]);
    }
}
