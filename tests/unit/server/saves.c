/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/saves.h"

#include "base/digest.h"
#include "base/spec.h"

#include <stdlib.h>

struct rps_header
save_header(struct peer *peer, uint64_t step)
{
    struct rps_header header = request_of(peer, RPS_OP_SAVE);

    header.step = step;
    return header;
}

/* The manifest of a job with one PS. */
char *
manifest_on(const char *prepared, uint64_t step, uint32_t epoch,
        const char *parent, const char *parent_digest)
{
    json_t *answer = json_loads(prepared, 0, NULL);
    json_t *part = json_object_get(answer, "part");
    json_t *tables = json_object();
    json_t *manifest;
    struct rps_digest_entry entries[4];
    char *specs[4];
    size_t count = 0;
    const char *name;
    json_t *table;
    char hex[RPS_DIGEST_HEX_BYTES];
    char *text;

    json_object_foreach(json_object_get(part, "tables"), name, table)
    {
        rps_table_spec spec;

        ck_assert_int_eq(rps_spec_from_value(
                                 json_object_get(table, "spec"), &spec, NULL),
                RPS_OK);
        specs[count] = rps_spec_to_json(&spec);
        entries[count].name = name;
        entries[count].spec_json = specs[count];
        ck_assert(rps_digest_parse(
                json_string_value(json_object_get(table, "digest")),
                &entries[count].digest));
        count++;
        json_object_set_new(tables, name,
                json_pack("{s:O, s:O, s:O}", "spec",
                        json_object_get(table, "spec"), "rows",
                        json_object_get(table, "rows"), "digest",
                        json_object_get(table, "digest")));
        if (json_object_get(table, "erased") != NULL) {
            json_object_set(json_object_get(tables, name), "erased",
                    json_object_get(table, "erased"));
        }
    }
    rps_digest_hex(rps_digest_checkpoint(entries, count), hex);
    manifest = json_pack("{s:i, s:s, s:o, s:I, s:i, s:s, s:s,"
                         " s:[{s:O, s:O, s:O}], s:o, s:{s:i}, s:s}",
            "format", 1, "kind", parent != NULL ? "delta" : "full", "parent",
            parent != NULL ? json_pack("{s:s, s:s}", "name", parent, "digest",
                                     parent_digest)
                           : json_null(),
            "step", (json_int_t)step, "epoch", (int)epoch, "job_id", "test",
            "seed", "0", "parts", "file", json_object_get(answer, "file"),
            "bytes", json_object_get(answer, "bytes"), "xxh3",
            json_object_get(answer, "xxh3"), "tables", tables, "data_position",
            "row", 640, "digest", hex);
    ck_assert_ptr_nonnull(manifest);
    text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    while (count > 0) {
        free(specs[--count]);
    }
    json_decref(manifest);
    json_decref(answer);
    return text;
}

char *
manifest_of(const char *prepared, uint64_t step, uint32_t epoch)
{
    return manifest_on(prepared, step, epoch, NULL, NULL);
}

void
commit_save(struct peer *peer, uint64_t step, const char *manifest)
{
    const struct rps_header header = save_header(peer, step);
    json_t *object = json_pack("{s:s, s:i, s:s}", "action", "commit", "keep", 5,
            "manifest", manifest);
    char *text = json_dumps(object, JSON_COMPACT);

    json_decref(object);
    ask(peer, &header, text, RPS_OK, NULL);
    free(text);
}

void
save(struct peer *peer, uint64_t step)
{
    const struct rps_header header = save_header(peer, step);
    char *prepared = NULL;
    char *manifest;

    ask(peer, &header, "{\"action\":\"prepare\"}", RPS_OK, &prepared);
    manifest = manifest_of(prepared, step, peer->epoch);
    commit_save(peer, step, manifest);
    free(manifest);
    free(prepared);
}
