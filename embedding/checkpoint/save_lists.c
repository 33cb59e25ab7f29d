/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Erased keys and counts of keys without a row, out of a cut: numbered first,
 * since the header says how many there are, then written.
 */
#include "base/hash.h"
#include "embedding/checkpoint/admission.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/save.h"
#include "embedding/checkpoint/writer.h"

#include <inttypes.h>
#include <stdlib.h>

struct list_save {
    const struct rps_ckpt_save *save;
    const rps_table_spec *spec;
    uint64_t job_seed;
    uint32_t slot_first;
    uint32_t slot_last;
    struct rps_ckpt_writer writer;
    uint64_t entries;
    struct rps_digest digest; /* of erased keys */
};

static struct list_save
begin(const struct rps_ckpt_save *save, size_t table)
{
    struct list_save list = {.save = save,
            .spec = rps_cut_spec(save->cut, table),
            .job_seed = rps_cut_job_seed(save->cut)};

    rps_ckpt_part_slots(
            save->id->part, save->id->parts, &list.slot_first, &list.slot_last);
    return list;
}

/* Takes the name. */
static rps_status
open_writer(struct list_save *list, char *name, const struct rps_npy *npy)
{
    const struct rps_ckpt_save *save = list->save;
    rps_status status;

    if (name == NULL) {
        return rps_fail(
                save->error, RPS_E_NOMEM, "%s: no memory", save->folder);
    }
    status = rps_ckpt_writer_open(
            &list->writer, save->folder, name, npy, save->error);
    free(name);
    return status;
}

/* The entries that were announced in the header, no more and no fewer. */
static rps_status
end(struct list_save *list, rps_status status, uint64_t entries)
{
    const struct rps_ckpt_save *save = list->save;

    if (status == RPS_OK && list->entries != entries) {
        status = rps_fail(save->error, RPS_E_CORRUPT,
                "table %s: a list of the cut has %" PRIu64
                " entries, then %" PRIu64
                ": this is a fault of recps, please report it",
                list->spec->name, entries, list->entries);
    }
    if (status == RPS_OK) {
        return rps_ckpt_writer_close(&list->writer,
                json_object_get(save->part, "files"), save->error);
    }
    rps_ckpt_writer_discard(&list->writer);
    return status;
}

static rps_status
check_slot(const struct list_save *list, const char *what, uint64_t id,
        uint32_t slot)
{
    if (slot >= list->slot_first && slot <= list->slot_last) {
        return RPS_OK;
    }
    return rps_fail(list->save->error, RPS_E_WRONG_ROUTE,
            "table %s: the %s %" PRIu64 " is of slot %" PRIu32
            ", this PS has slots %" PRIu32 " to %" PRIu32,
            list->spec->name, what, id, slot, list->slot_first,
            list->slot_last);
}

static rps_status
number_count(void *context, const struct rps_admission_count *count)
{
    struct list_save *list = context;

    (void)count;
    list->entries++;
    return RPS_OK;
}

static rps_status
write_count(void *context, const struct rps_admission_count *count)
{
    struct list_save *list = context;
    const uint64_t words[RPS_CKPT_ADMISSION_WORDS] = {count->id, count->count};
    rps_status status = check_slot(list, "count of", count->id,
            rps_admission_slot(
                    list->spec->admission, count->id, list->job_seed));

    list->entries++;
    return status == RPS_OK ? rps_ckpt_writer_add(&list->writer, words,
                                      sizeof(words), list->save->error)
                            : status;
}

rps_status
rps_ckpt_admission_save(
        const struct rps_ckpt_save *save, size_t table, uint64_t *entries_out)
{
    struct list_save list = begin(save, table);
    struct rps_npy npy = {"<u8", 2, {0, RPS_CKPT_ADMISSION_WORDS}, 0, 0};
    uint64_t entries = 0;
    rps_status status = rps_cut_visit_admission(
            save->cut, table, false, number_count, &list, save->error);

    entries = list.entries;
    *entries_out = entries;
    if (status != RPS_OK || entries == 0) {
        return status;
    }
    npy.shape[0] = entries;
    list.entries = 0;
    status = open_writer(&list,
            rps_ckpt_admission_name(
                    list.spec->name, save->id->part, save->id->parts),
            &npy);
    if (status == RPS_OK) {
        status = rps_cut_visit_admission(
                save->cut, table, true, write_count, &list, save->error);
    }
    return end(&list, status, entries);
}

static rps_status
number_key(void *context, uint64_t key)
{
    struct list_save *list = context;

    (void)key;
    list->entries++;
    return RPS_OK;
}

static rps_status
write_key(void *context, uint64_t key)
{
    struct list_save *list = context;
    rps_status status = check_slot(list, "erased key", key,
            rps_hash_slot(rps_key_hash(key, list->job_seed)));

    list->entries++;
    rps_digest_add(&list->digest, rps_digest_erased(key));
    return status == RPS_OK ? rps_ckpt_writer_add(&list->writer, &key,
                                      sizeof(key), list->save->error)
                            : status;
}

rps_status
rps_ckpt_erased_save(const struct rps_ckpt_save *save, size_t table,
        uint64_t *entries_out, struct rps_digest *digest)
{
    struct list_save list = begin(save, table);
    struct rps_npy npy = {"<u8", 1, {0}, 0, 0};
    uint64_t entries = 0;
    rps_status status =
            rps_cut_visit_erased(save->cut, table, number_key, &list);

    entries = list.entries;
    *entries_out = entries;
    if (status != RPS_OK || entries == 0) {
        return status;
    }
    npy.shape[0] = entries;
    list.entries = 0;
    status = open_writer(&list,
            rps_ckpt_erased_name(
                    list.spec->name, save->id->part, save->id->parts),
            &npy);
    if (status == RPS_OK) {
        status = rps_cut_visit_erased(save->cut, table, write_key, &list);
    }
    rps_digest_add(digest, list.digest);
    return end(&list, status, entries);
}
