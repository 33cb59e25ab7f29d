/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/report.h"

#include "base/json.h"
#include "base/spec.h"
#include "bench/memory.h"
#include "bench/print.h"
#include "embedding/kernels/kernels.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
bench_report_init(struct bench_report *report)
{
    memset(report, 0, sizeof(*report));
#define BENCH_CLEAR(name, words) report->name = (double)NAN;
    BENCH_FIGURES(BENCH_CLEAR)
#undef BENCH_CLEAR
    report->checked_answers = 0;
}

static void
add_request(json_t *object, const struct bench_table_args *args, uint64_t rows)
{
    json_object_set_new(object, "rows", json_integer((json_int_t)rows));
    json_object_set_new(object, "dim", json_integer(args->dims[0]));
    json_object_set_new(object, "batch", json_integer((json_int_t)args->batch));
    json_object_set_new(object, "threads", json_integer(args->threads));
    json_object_set_new(object, "dist", json_string(args->dist_text));
    json_object_set_new(object, "mix",
            bench_text_or_null(args->mix_text == NULL ? "" : args->mix_text));
    json_object_set_new(
            object, "value_type", json_string(bench_value_str(args->value)));
    json_object_set_new(object, "optimizer",
            json_string(rps_optimizer_str(args->optimizer)));
    json_object_set_new(object, "seconds", json_real(args->seconds));
    json_object_set_new(object, "seed", json_integer((json_int_t)args->seed));
}

static void
add_points(json_t *object, const struct bench_report *report)
{
    json_t *list = json_array();

    for (size_t i = 0; i < report->point_count; i++) {
        const struct bench_point *point = &report->points[i];
        json_array_append_new(
                list, json_pack("{s:i, s:I, s:f}", "dim", (int)point->dim,
                              "rows", (json_int_t)point->rows,
                              "overhead_bytes_per_row", point->overhead));
    }
    json_object_set_new(object, "sizes", list);
}

static bool
print_json(const struct bench_report *report,
        const struct bench_table_args *args, uint64_t rows)
{
    json_t *object = json_object();

    add_request(object, args, rows);
#define BENCH_ADD(name, words) \
    json_object_set_new(object, #name, rps_json_real(report->name));
    BENCH_FIGURES(BENCH_ADD)
#undef BENCH_ADD
    json_object_set_new(object, "absl", bench_text_or_null(report->absl));
    json_object_set_new(
            object, "libcuckoo", bench_text_or_null(report->libcuckoo));
    json_object_set_new(object, "prefetch",
            json_pack("{s:i, s:i, s:i}", "index", (int)report->index_distance,
                    "row", (int)report->row_distance, "absl",
                    (int)report->absl_distance));
    if (report->point_count > 0) {
        add_points(object, report);
    }
    bench_add_machine(object);
    return bench_put_json(object);
}

static void
print_people(const struct bench_report *report,
        const struct bench_table_args *args, uint64_t rows)
{
    char cpu[256];
    char pages[256];

    bench_cpu_model(cpu, sizeof(cpu));
    bench_huge_pages_setting(pages, sizeof(pages));
    printf("%llu rows, dim %u %s, %s, batch %zu, %s%s%s, %u thread%s\n"
           "%s, %s kernels, huge pages: %s\n",
            (unsigned long long)rows, args->dims[0],
            bench_value_str(args->value), rps_optimizer_str(args->optimizer),
            args->batch, args->dist_text, args->mix_text ? ", mix " : "",
            args->mix_text ? args->mix_text : "", args->threads,
            args->threads == 1 ? "" : "s", cpu, rps_isa_str(rps_isa_detect()),
            pages);
#define BENCH_PRINT(name, words) bench_print_figure(words, report->name);
    BENCH_FIGURES(BENCH_PRINT)
#undef BENCH_PRINT
    if (report->absl[0] != '\0') {
        printf("peers: %s (prefetch %u), %s\n", report->absl,
                report->absl_distance, report->libcuckoo);
    }
    for (size_t i = 0; i < report->point_count; i++) {
        printf("  dim %-5u %12llu rows %10.2f bytes a row beyond payload\n",
                report->points[i].dim,
                (unsigned long long)report->points[i].rows,
                report->points[i].overhead);
    }
}

bool
bench_report_print(const struct bench_report *report,
        const struct bench_table_args *args, uint64_t rows)
{
    if (args->json) {
        return print_json(report, args, rows);
    }
    print_people(report, args, rows);
    return fflush(stdout) == 0;
}
