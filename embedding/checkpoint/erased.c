/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/erased.h"

#include "base/hash.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/reader.h"

#include <inttypes.h>
#include <stdlib.h>

#define BATCH_KEYS 8192u

struct erased_scan {
    const struct rps_ckpt_scan *scan;
    struct rps_ckpt_reader reader;
    struct rps_ckpt_erased batch; /* room for BATCH_KEYS */
};

static rps_status
open_erased(struct erased_scan *s, struct rps_error *error)
{
    const struct rps_ckpt_scan *scan = s->scan;
    const struct rps_npy wanted = {"<u8", 1, {scan->table->erased}, 0, 0};
    char *name = rps_ckpt_erased_name(
            scan->table->spec.name, scan->part->part, scan->part->parts);
    rps_status status;

    s->batch.keys = calloc(BATCH_KEYS, sizeof(*s->batch.keys));
    s->batch.hashes = calloc(BATCH_KEYS, sizeof(*s->batch.hashes));
    if (name == NULL || s->batch.keys == NULL || s->batch.hashes == NULL) {
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

/* An erased key of other slots would erase what another part wrote. */
static rps_status
check_slots(const struct erased_scan *s, struct rps_error *error)
{
    const struct rps_ckpt_part *part = s->scan->part;

    for (size_t i = 0; i < s->batch.n; i++) {
        const uint32_t slot = rps_hash_slot(s->batch.hashes[i]);

        if (slot < part->slot_first || slot > part->slot_last) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: key %" PRIu64 " is in slot %" PRIu32
                    ", the part has slots %" PRIu32 " to %" PRIu32,
                    s->reader.path, s->batch.keys[i], slot, part->slot_first,
                    part->slot_last);
        }
    }
    return RPS_OK;
}

static rps_status
read_batch(struct erased_scan *s, size_t n, struct rps_error *error)
{
    rps_status status;

    s->batch.n = n;
    s->batch.file_bytes = n * sizeof(*s->batch.keys);
    status = rps_ckpt_reader_read(
            &s->reader, s->batch.keys, s->batch.file_bytes, error);
    if (status == RPS_OK) {
        rps_key_hashes(n, s->batch.keys, s->scan->job_seed, s->batch.hashes);
        status = check_slots(s, error);
    }
    return status;
}

rps_status
rps_ckpt_erased_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_erased *erased,
                struct rps_error *error),
        struct rps_error *error)
{
    struct erased_scan s = {.scan = scan};
    uint64_t left = scan->table->erased;
    rps_status status;

    if (left == 0) {
        return RPS_OK;
    }
    status = open_erased(&s, error);
    while (status == RPS_OK && left > 0) {
        const size_t n = left < BATCH_KEYS ? (size_t)left : BATCH_KEYS;

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
    free(s.batch.keys);
    free(s.batch.hashes);
    return status;
}
