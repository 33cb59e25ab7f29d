/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/keys.h"

#include "base/hash.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/reader.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define BATCH_KEYS 8192u

struct keys_scan {
    const struct rps_ckpt_scan *scan;
    rps_status (*take)(
            void *context, struct rps_ckpt_keys *keys, struct rps_error *error);
    struct rps_ckpt_reader reader;
    struct rps_ckpt_keys batch; /* room for BATCH_KEYS */
};

/* A key of other slots would be lost by a reader of one part, and an erased
 * one would erase what another part wrote. */
static rps_status
check_slots(const struct keys_scan *s, struct rps_error *error)
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
read_batch(struct keys_scan *s, size_t n, struct rps_error *error)
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
    return status == RPS_OK ? s->take(s->scan->context, &s->batch, error)
                            : status;
}

static rps_status
open_keys(struct keys_scan *s, const char *name, uint64_t n,
        struct rps_error *error)
{
    const struct rps_ckpt_scan *scan = s->scan;
    const struct rps_npy wanted = {"<u8", 1, {n}, 0, 0};
    rps_status status;

    s->batch.keys = calloc(BATCH_KEYS, sizeof(*s->batch.keys));
    s->batch.hashes = calloc(BATCH_KEYS, sizeof(*s->batch.hashes));
    if (name == NULL || s->batch.keys == NULL || s->batch.hashes == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory to read table %s",
                scan->folder->path, scan->table->spec.name);
    }
    status = rps_ckpt_reader_open(
            &s->reader, scan->folder, scan->part->files, name, error);
    return status == RPS_OK ? rps_ckpt_reader_expect(&s->reader, &wanted, error)
                            : status;
}

static rps_status
scan_file(struct keys_scan *s, const char *name, uint64_t n,
        struct rps_error *error)
{
    rps_status status = open_keys(s, name, n, error);

    while (status == RPS_OK && n > 0) {
        const size_t some = n < BATCH_KEYS ? (size_t)n : BATCH_KEYS;

        n -= some;
        status = read_batch(s, some, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_reader_check(&s->reader, error);
    }
    rps_ckpt_reader_close(&s->reader);
    free(s->batch.keys);
    free(s->batch.hashes);
    return status;
}

rps_status
rps_ckpt_keys_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        struct rps_error *error)
{
    struct keys_scan s = {.scan = scan, .take = take};
    struct rps_ckpt_column columns[RPS_CKPT_COLUMNS_MAX];
    char *name;
    rps_status status;

    rps_ckpt_columns(&scan->table->spec, columns);
    assert(columns[0].kind == RPS_CKPT_KEYS);
    name = rps_ckpt_column_name(scan->table->spec.name, scan->part->part,
            scan->part->parts, &columns[0]);
    status = scan_file(&s, name, scan->table->rows, error);
    free(name);
    return status;
}

rps_status
rps_ckpt_erased_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        struct rps_error *error)
{
    struct keys_scan s = {.scan = scan, .take = take};
    char *name;
    rps_status status;

    if (scan->table->erased == 0) {
        return RPS_OK;
    }
    name = rps_ckpt_erased_name(
            scan->table->spec.name, scan->part->part, scan->part->parts);
    status = scan_file(&s, name, scan->table->erased, error);
    free(name);
    return status;
}
