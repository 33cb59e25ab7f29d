/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process gives back: tables created, filled and dropped 50 times
 * leave the resident memory where it was after the first few.
 */
#include "bench/check.h"
#include "bench/memory.h"
#include "bench/print.h"
#include "bench/table/parts.h"

#define TABLES    50u
#define SETTLED   5u /* tables until what is kept for reuse is there */
#define FILL_KEYS 4096u

static rps_status
create_and_drop(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_batch *batch,
        struct bench_report *report)
{
    struct rps_table *table = NULL;
    rps_table_spec spec;
    rps_status status = RPS_OK;

    bench_table_spec(args, 0, &spec);
    status = rps_table_create(&table, &spec, 0, &report->error);
    if (status == RPS_OK) {
        status = bench_fill(table, set, 0, set->rows, batch, &report->error);
    }
    rps_table_destroy(table);
    return status;
}

rps_status
bench_part_memory(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    struct bench_batch batch;
    uint64_t settled = 0;
    rps_status status = bench_batch_init(&batch, FILL_KEYS, args->dims[0]);

    bench_progress("creating, filling and dropping %u tables", TABLES);
    for (unsigned i = 0; i < TABLES && status == RPS_OK; i++) {
        status = create_and_drop(args, set, &batch, report);
        if (i + 1 == SETTLED) {
            settled = bench_rss_bytes();
        }
    }
    if (status == RPS_OK) {
        report->drop_rss_growth_bytes =
                (double)bench_rss_bytes() - (double)settled;
    }
    bench_batch_finish(&batch);
    return status;
}
