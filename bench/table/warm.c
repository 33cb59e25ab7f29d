/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/warm.h"

#define BATCH      4096u
#define PAGE_BYTES 4096u

/* Of the table, or of `peer` if there is one. */
static void
look_up(const struct bench_fixture *fixture, const struct bench_peer *peer,
        const struct bench_batch *batch)
{
    const struct rps_read read = {.count = batch->n, .keys = batch->keys};

    if (peer != NULL) {
        bench_peer_lookup(peer, batch->n, batch->keys, 0, (char *)batch->out);
    } else {
        rps_table_lookup(fixture->table, &read, batch->out,
                fixture->dim * sizeof(float));
    }
}

static rps_status
look_up_all(struct bench_fixture *fixture, const struct bench_peer *peer)
{
    const uint64_t rows = fixture->set->rows;
    struct bench_batch batch;
    rps_status status = bench_batch_init(&batch, BATCH, fixture->dim);

    for (uint64_t at = 0; at < BENCH_WARM_PASSES * rows && status == RPS_OK;
            at += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            batch.rows[i] = (uint32_t)((at + i) % rows);
        }
        bench_batch_keys(fixture, &batch);
        look_up(fixture, peer, &batch);
    }
    bench_batch_finish(&batch);
    return status;
}

static void
touch_pages(const char *memory, uint64_t bytes)
{
    for (unsigned pass = 0; pass < BENCH_WARM_PASSES; pass++) {
        for (uint64_t at = 0; at < bytes; at += PAGE_BYTES) {
            (void)*(const volatile char *)(memory + at);
        }
    }
}

rps_status
bench_warm_fixture(struct bench_fixture *fixture)
{
    const struct bench_arrays *arrays = &fixture->arrays;

    touch_pages(arrays->lines, arrays->line_count * BENCH_LINE_BYTES);
    touch_pages(arrays->rows, arrays->row_count * arrays->row_bytes);
    return look_up_all(fixture, NULL);
}

rps_status
bench_warm_peer(struct bench_fixture *fixture, const struct bench_peer *peer)
{
    return look_up_all(fixture, peer);
}
