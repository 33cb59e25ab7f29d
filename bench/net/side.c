/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/side.h"

void
bench_slice_finish(struct bench_slice *slice)
{
    bench_series_finish(&slice->micros);
}

static void
note(struct bench_side *side, const struct bench_slice *slice)
{
    bench_series_add(&side->ids_rate, (double)slice->ids / slice->seconds);
    bench_series_add(&side->bytes_rate, (double)slice->bytes / slice->seconds);
    bench_series_add(
            &side->beside_rate, (double)slice->beside_ids / slice->seconds);
    bench_series_add(&side->p50_us, bench_series_median(&slice->micros));
    for (size_t i = 0; i < slice->micros.count; i++) {
        bench_series_add(&side->micros, slice->micros.values[i]);
    }
    side->client_cpu_seconds += slice->client_cpu_seconds;
    side->server_cpu_seconds += slice->server_cpu_seconds;
    side->ids += slice->ids;
    side->bytes += slice->bytes;
}

rps_status
bench_side_run(struct bench_side *side, double seconds, bool counts,
        struct rps_error *error)
{
    struct bench_slice slice = {.seconds = 0};
    rps_status status = side->run(side->context, seconds, &slice, error);

    if (status == RPS_OK && counts) {
        note(side, &slice);
    }
    bench_slice_finish(&slice);
    return status;
}

void
bench_side_finish(struct bench_side *side)
{
    bench_series_finish(&side->ids_rate);
    bench_series_finish(&side->bytes_rate);
    bench_series_finish(&side->beside_rate);
    bench_series_finish(&side->p50_us);
    bench_series_finish(&side->micros);
}
