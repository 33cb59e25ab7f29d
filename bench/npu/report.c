/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/npu/report.h"

#include "base/json.h"
#include "bench/print.h"

#include <math.h>
#include <stdio.h>

void
bench_npu_report_init(struct bench_npu_report *report)
{
#define BENCH_CLEAR(name, words) report->name = (double)NAN;
    BENCH_NPU_FIGURES(BENCH_CLEAR)
#undef BENCH_CLEAR
    report->checked_runs = 0;
}

static bool
print_json(const struct bench_npu_report *report,
        const struct bench_npu_args *args)
{
    json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "batch",
            (json_int_t)args->batch, "width", (json_int_t)args->width, "steps",
            (json_int_t)args->steps, "loop", (json_int_t)args->loop, "rounds",
            (json_int_t)args->rounds, "launch_latency_ns",
            (json_int_t)args->launch_latency_ns, "link_bytes_per_second",
            (json_int_t)args->link_bytes_per_second);

#define BENCH_ADD(name, words) \
    json_object_set_new(object, #name, rps_json_real(report->name));
    BENCH_NPU_FIGURES(BENCH_ADD)
#undef BENCH_ADD
    bench_add_machine(object);
    return bench_put_json(object);
}

bool
bench_npu_report_print(const struct bench_npu_report *report,
        const struct bench_npu_args *args)
{
    if (args->json) {
        return print_json(report, args);
    }
    printf("%llu steps of %llu rows, width %llu, %llu a launch\n",
            (unsigned long long)args->steps, (unsigned long long)args->batch,
            (unsigned long long)args->width, (unsigned long long)args->loop);
#define BENCH_PRINT(name, words) bench_print_figure(words, report->name);
    BENCH_NPU_FIGURES(BENCH_PRINT)
#undef BENCH_PRINT
    return fflush(stdout) == 0;
}
