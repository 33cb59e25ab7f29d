/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/report.h"

#include "base/json.h"
#include "base/spec.h"
#include "bench/options.h"
#include "bench/print.h"

#include <math.h>
#include <stdio.h>

void
bench_checkpoint_report_init(struct bench_checkpoint_report *report)
{
#define BENCH_CLEAR(name, words) report->name = (double)NAN;
    BENCH_CHECKPOINT_FIGURES(BENCH_CLEAR)
#undef BENCH_CLEAR
    report->checked_restores = 0;
}

static bool
print_json(const struct bench_checkpoint_report *report,
        const struct bench_checkpoint_args *args)
{
    json_t *object = json_pack("{s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:f, s:I}",
            "rows", (json_int_t)args->rows, "dim", (json_int_t)args->spec.dim,
            "optimizer", rps_optimizer_str(args->spec.optimizer), "value_type",
            bench_value_str(args->spec.value_dtype), "dir", args->dir, "rounds",
            (json_int_t)args->rounds, "batch", (json_int_t)args->batch,
            "seconds", args->seconds, "save_buffer",
            (json_int_t)args->save_buffer);

#define BENCH_ADD(name, words) \
    json_object_set_new(object, #name, rps_json_real(report->name));
    BENCH_CHECKPOINT_FIGURES(BENCH_ADD)
#undef BENCH_ADD
    bench_add_machine(object);
    return bench_put_json(object);
}

bool
bench_checkpoint_report_print(const struct bench_checkpoint_report *report,
        const struct bench_checkpoint_args *args)
{
    if (args->json) {
        return print_json(report, args);
    }
    printf("%llu rows, dim %u %s, %s, below %s\n",
            (unsigned long long)args->rows, args->spec.dim,
            bench_value_str(args->spec.value_dtype),
            rps_optimizer_str(args->spec.optimizer), args->dir);
#define BENCH_PRINT(name, words) bench_print_figure(words, report->name);
    BENCH_CHECKPOINT_FIGURES(BENCH_PRINT)
#undef BENCH_PRINT
    return fflush(stdout) == 0;
}
