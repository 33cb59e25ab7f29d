/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of its one table: the part has all of it. */
static void
digest_of(const char *name, const json_t *table, char hex[RPS_DIGEST_HEX_BYTES])
{
    char *spec = json_dumps(json_object_get(table, "spec"),
            JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    struct rps_digest_entry entry = {
            .name = name, .spec_json = spec == NULL ? "" : spec};
    const char *text = json_string_value(json_object_get(table, "digest"));

    (void)rps_digest_parse(text == NULL ? "" : text, &entry.digest);
    rps_digest_hex(rps_digest_checkpoint(&entry, 1), hex);
    free(spec);
}

static json_t *
parent_value(const struct bench_parent *parent)
{
    char name[40];

    (void)snprintf(name, sizeof(name), "ckpt-%012" PRIu64, parent->step);
    return parent->step == 0 ? json_null()
                             : json_pack("{s:s, s:s}", "name", name, "digest",
                                       parent->digest);
}

/* Its entry, without what only a part says. */
static json_t *
table_value(const json_t *table)
{
    json_t *entry = json_copy((json_t *)(uintptr_t)table);

    (void)json_object_del(entry, "pushes");
    (void)json_object_del(entry, "admission");
    (void)json_object_del(entry, "whole");
    return entry;
}

rps_status
bench_manifest_make(uint64_t step, const json_t *answer,
        const struct bench_parent *parent, char **text_out,
        struct bench_parent *self, struct rps_error *error)
{
    const json_t *part = json_object_get(answer, "part");
    void *first = json_object_iter(json_object_get(part, "tables"));
    const char *name = json_object_iter_key(first);
    const json_t *table = json_object_iter_value(first);
    json_t *manifest;

    *self = (struct bench_parent){.step = step};
    digest_of(name, table, self->digest);
    manifest = json_pack("{s:i, s:s, s:o, s:I, s:O, s:s, s:s, s:[{s:O, s:O, "
                         "s:O}], s:{s:o}, s:n, s:s}",
            "format", 1, "kind", parent->step == 0 ? "full" : "delta", "parent",
            parent_value(parent), "step", (json_int_t)step, "epoch",
            json_object_get(part, "epoch"), "job_id", "recps-bench", "seed",
            "0", "parts", "file", json_object_get(answer, "file"), "bytes",
            json_object_get(answer, "bytes"), "xxh3",
            json_object_get(answer, "xxh3"), "tables", name, table_value(table),
            "data_position", "digest", self->digest);
    *text_out = manifest == NULL
                        ? NULL
                        : json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS |
                                                       JSON_REAL_PRECISION(9));
    json_decref(manifest);
    return *text_out != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory for a manifest");
}
