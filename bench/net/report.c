/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/report.h"

#include "base/json.h"
#include "base/spec.h"
#include "bench/print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void
bench_net_report_init(struct bench_net_report *report)
{
#define BENCH_CLEAR(name, words) report->name = (double)NAN;
    BENCH_NET_FIGURES(BENCH_CLEAR)
#undef BENCH_CLEAR
}

static void
add_request(json_t *object, const struct bench_net_args *args, uint64_t rows)
{
    json_object_set_new(object, "transport",
            json_string(rps_transport_str(args->transport)));
    json_object_set_new(object, "rows", json_integer((json_int_t)rows));
    json_object_set_new(object, "dim", json_integer(args->dim));
    json_object_set_new(object, "batch", json_integer((json_int_t)args->batch));
    json_object_set_new(object, "depth", json_integer((json_int_t)args->depth));
    json_object_set_new(object, "connections", json_integer(args->connections));
    json_object_set_new(
            object, "beside", json_integer((json_int_t)args->beside));
    json_object_set_new(
            object, "value_type", json_string(bench_value_str(args->value)));
    json_object_set_new(
            object, "wire_type", json_string(bench_value_str(args->wire)));
    json_object_set_new(object, "optimizer",
            json_string(rps_optimizer_str(args->optimizer)));
    json_object_set_new(object, "mix", json_string(args->mix_text));
    json_object_set_new(object, "dist", json_string(args->dist_text));
    json_object_set_new(object, "address",
            bench_text_or_null(args->address == NULL ? "" : args->address));
    json_object_set_new(object, "seconds", json_real(args->seconds));
    json_object_set_new(object, "seed", json_integer((json_int_t)args->seed));
}

static bool
print_json(const struct bench_net_report *report,
        const struct bench_net_args *args, uint64_t rows)
{
    json_t *object = json_object();

    add_request(object, args, rows);
#define BENCH_ADD(name, words) \
    json_object_set_new(object, #name, rps_json_real(report->name));
    BENCH_NET_FIGURES(BENCH_ADD)
#undef BENCH_ADD
    bench_add_machine(object);
    return bench_put_json(object);
}

bool
bench_net_report_print(const struct bench_net_report *report,
        const struct bench_net_args *args, uint64_t rows)
{
    if (args->json) {
        return print_json(report, args, rows);
    }
    printf("%s, %llu rows, dim %u %s (%s on the wire), %s, batch %zu, depth "
           "%zu, %u connection%s, %s, %s\n",
            rps_transport_str(args->transport), (unsigned long long)rows,
            args->dim, bench_value_str(args->value),
            bench_value_str(args->wire), rps_optimizer_str(args->optimizer),
            args->batch, args->depth, args->connections,
            args->connections == 1 ? "" : "s", args->mix_text, args->dist_text);
#define BENCH_PRINT(name, words) bench_print_figure(words, report->name);
    BENCH_NET_FIGURES(BENCH_PRINT)
#undef BENCH_PRINT
    return fflush(stdout) == 0;
}
