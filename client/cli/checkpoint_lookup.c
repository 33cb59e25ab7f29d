/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/checkpoint_lookup.h"

#include "base/hash.h"
#include "base/spec.h"
#include "client/cli/checkpoint_tool.h"
#include "embedding/checkpoint/keyset.h"
#include "embedding/checkpoint/replay.h"
#include "embedding/checkpoint/rowset.h"
#include "embedding/checkpoint/values.h"

#include <stdlib.h>
#include <string.h>

/** Rows of the keys that are asked for. */
struct wanted {
    struct rps_keyset keys;
    struct rps_rowset rows;
    struct rps_checkpoint_progress progress;
    uint64_t done;
    uint64_t total;
};

static rps_status
keep_wanted(
        void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct wanted *w = context;
    const size_t floats = w->rows.slot_floats;
    size_t kept = 0;

    for (size_t i = 0; i < batch->n; i++) {
        if (rps_keyset_mark(&w->keys, batch->keys[i]) == 0) {
            continue;
        }
        batch->keys[kept] = batch->keys[i];
        batch->meta[kept] = batch->meta[i];
        memmove(batch->values + kept * batch->value_bytes,
                batch->values + i * batch->value_bytes, batch->value_bytes);
        memmove(batch->slots + kept * floats, batch->slots + i * floats,
                floats * sizeof(*batch->slots));
        kept++;
    }
    batch->n = kept;
    return rps_rowset_add(&w->rows, batch)
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory for the rows");
}

static rps_status
note_keys(struct wanted *w, const struct rps_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        uint8_t *mark = rps_keyset_add(&w->keys, keys->list[i]);

        if (mark == NULL) {
            return RPS_E_NOMEM;
        }
        *mark = 1;
    }
    return RPS_OK;
}

static void
advance(void *context, uint64_t bytes)
{
    struct wanted *w = context;

    w->done += bytes;
    rps_checkpoint_progress_show(
            &w->progress, w->done < w->total ? w->done : w->total, w->total);
}

/* One key is of one slot: the other parts are not read. */
static void
narrow(struct rps_ckpt_replay *replay, const struct rps_keys *keys,
        uint64_t job_seed)
{
    replay->slot_first = RPS_SLOT_COUNT - 1;
    replay->slot_last = 0;
    for (size_t i = 0; i < keys->count; i++) {
        const uint32_t slot =
                rps_hash_slot(rps_key_hash(keys->list[i], job_seed));

        replay->slot_first =
                slot < replay->slot_first ? slot : replay->slot_first;
        replay->slot_last = slot > replay->slot_last ? slot : replay->slot_last;
    }
}

static rps_status
find_rows(struct rps_ckpt_chain *chain, const rps_table_spec *spec,
        const struct rps_keys *keys, struct wanted *w, struct rps_error *error)
{
    struct rps_ckpt_replay replay = {.chain = chain,
            .table = spec->name,
            .advance = advance,
            .context = w};
    rps_status status = note_keys(w, keys);

    if (status != RPS_OK) {
        return rps_fail(error, status, "no memory for the keys");
    }
    if (keys->count == 0) {
        return RPS_OK;
    }
    narrow(&replay, keys, rps_ckpt_chain_last(chain)->manifest.job_seed);
    w->total = rps_ckpt_replay_bytes(&replay);
    rps_checkpoint_progress_begin(&w->progress);
    status = rps_ckpt_replay_rows(&replay, keep_wanted, w, error);
    rps_checkpoint_progress_end(&w->progress);
    return status;
}

static int
print_all(const rps_table_spec *spec, const struct rps_keys *keys,
        const struct wanted *w,
        void (*print)(void *context, uint32_t dim, uint64_t key,
                const float *row, bool present),
        void *context)
{
    float *row = calloc(spec->dim, sizeof(*row));

    if (row == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "lookup", "no memory");
    }
    for (size_t i = 0; i < keys->count; i++) {
        const size_t at = rps_rowset_find(&w->rows, keys->list[i]);

        if (at != SIZE_MAX) {
            rps_ckpt_values_floats(spec->value_dtype,
                    w->rows.values + at * w->rows.value_bytes, spec->dim, row);
        }
        for (uint32_t k = 0; at == SIZE_MAX && k < spec->dim; k++) {
            row[k] = spec->default_value;
        }
        print(context, spec->dim, keys->list[i], row, at != SIZE_MAX);
    }
    free(row);
    return RPS_TOOL_OK;
}

static int
lookup(struct rps_ckpt_chain *chain, const rps_table_spec *spec,
        const struct rps_keys *keys,
        void (*print)(void *context, uint32_t dim, uint64_t key,
                const float *row, bool present),
        void *context)
{
    struct wanted w = {.rows = {.value_bytes = rps_ckpt_value_bytes(spec),
                               .slot_floats = rps_spec_slot_floats(spec)}};
    struct rps_error error = {.text = ""};
    rps_status status = find_rows(chain, spec, keys, &w, &error);
    int code = status == RPS_OK ? print_all(spec, keys, &w, print, context)
                                : rps_checkpoint_fail("lookup", status, &error);

    rps_keyset_finish(&w.keys);
    rps_rowset_finish(&w.rows);
    return code;
}

int
rps_checkpoint_lookup(const char *path, const char *table,
        const struct rps_keys *keys,
        void (*print)(void *context, uint32_t dim, uint64_t key,
                const float *row, bool present),
        void *context)
{
    struct rps_ckpt_chain chain;
    const struct rps_ckpt_manifest *manifest;
    size_t at;
    int code = rps_checkpoint_open("lookup", path, &chain);

    if (code != RPS_TOOL_OK) {
        return code;
    }
    manifest = &rps_ckpt_chain_last(&chain)->manifest;
    at = rps_ckpt_table_find(manifest->tables, manifest->table_count, table);
    code = at < manifest->table_count
                   ? lookup(&chain, &manifest->tables[at].spec, keys, print,
                             context)
                   : rps_tool_fail_status("lookup", RPS_E_NOT_FOUND,
                             "%s: there is no table %s", path, table);
    rps_ckpt_chain_close(&chain);
    return code;
}
