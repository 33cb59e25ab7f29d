/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/admission.h"

#include "base/hash.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ENTRIES 4096u
#define ENTRY_BYTES   (RPS_CKPT_ADMISSION_WORDS * sizeof(uint64_t))

struct counts_scan {
    const struct rps_ckpt_scan *scan;
    struct rps_ckpt_reader reader;
    struct rps_ckpt_counts batch; /* room for BATCH_ENTRIES */
};

/* The largest count of a kind. */
static uint32_t
count_max(enum rps_admission kind)
{
    return kind == RPS_ADMISSION_SKETCH ? UINT8_MAX : UINT16_MAX;
}

static rps_status
check_entry(const struct counts_scan *s, const uint64_t *words,
        uint32_t *slot_out, struct rps_error *error)
{
    const struct rps_ckpt_part *part = s->scan->part;
    const enum rps_admission kind = s->scan->table->spec.admission;
    const bool is_cell = kind == RPS_ADMISSION_SKETCH;

    if (words[1] == 0 || words[1] > count_max(kind)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s %" PRIu64 " has count %" PRIu64
                ", must be 1 to %" PRIu32,
                s->reader.path, is_cell ? "cell" : "key", words[0], words[1],
                count_max(kind));
    }
    *slot_out = RPS_SLOT_COUNT; /* none */
    if (!is_cell || words[0] / RPS_SKETCH_CELLS < RPS_SLOT_COUNT) {
        *slot_out = rps_admission_slot(kind, words[0], s->scan->job_seed);
    }
    if (*slot_out < part->slot_first || *slot_out > part->slot_last) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s %" PRIu64
                " is of no slot of the part, which has %" PRIu32 " to %" PRIu32,
                s->reader.path, is_cell ? "cell" : "key", words[0],
                part->slot_first, part->slot_last);
    }
    return RPS_OK;
}

static rps_status
read_batch(struct counts_scan *s, size_t n, struct rps_error *error)
{
    rps_status status = RPS_OK;

    s->batch.n = n;
    s->batch.file_bytes = n * ENTRY_BYTES;
    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        uint64_t words[RPS_CKPT_ADMISSION_WORDS];

        status = rps_ckpt_reader_read(&s->reader, words, ENTRY_BYTES, error);
        if (status == RPS_OK) {
            status = check_entry(s, words, &s->batch.slots[i], error);
        }
        if (status == RPS_OK) {
            s->batch.entries[i] = (struct rps_admission_count){
                    .id = words[0], .count = (uint32_t)words[1]};
        }
    }
    return status;
}

static rps_status
open_counts(struct counts_scan *s, struct rps_error *error)
{
    const struct rps_ckpt_scan *scan = s->scan;
    const struct rps_npy wanted = {
            "<u8", 2, {scan->table->admission, RPS_CKPT_ADMISSION_WORDS}, 0, 0};
    char *name = rps_ckpt_admission_name(
            scan->table->spec.name, scan->part->part, scan->part->parts);
    rps_status status;

    s->batch.entries = calloc(BATCH_ENTRIES, sizeof(*s->batch.entries));
    s->batch.slots = calloc(BATCH_ENTRIES, sizeof(*s->batch.slots));
    if (name == NULL || s->batch.entries == NULL || s->batch.slots == NULL) {
        free(name);
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory to read table %s",
                scan->folder->path, scan->table->spec.name);
    }
    status = rps_ckpt_reader_open(
            &s->reader, scan->folder, scan->part->files, name, error);
    free(name);
    return status == RPS_OK ? rps_ckpt_reader_expect(&s->reader, &wanted, error)
                            : status;
}

rps_status
rps_ckpt_admission_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_counts *counts,
                struct rps_error *error),
        struct rps_error *error)
{
    struct counts_scan s = {.scan = scan};
    uint64_t left = scan->table->admission;
    rps_status status;

    if (left == 0) {
        return RPS_OK;
    }
    status = open_counts(&s, error);
    while (status == RPS_OK && left > 0) {
        const size_t n = left < BATCH_ENTRIES ? (size_t)left : BATCH_ENTRIES;

        left -= n;
        status = read_batch(&s, n, error);
        if (status == RPS_OK) {
            status = take(scan->context, &s.batch, error);
        }
    }
    if (status == RPS_OK) {
        status = rps_ckpt_reader_check(&s.reader, error);
    }
    rps_ckpt_reader_close(&s.reader);
    free(s.batch.entries);
    free(s.batch.slots);
    return status;
}
