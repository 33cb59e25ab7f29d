/* SPDX-License-Identifier: Apache-2.0 */
#include "client/manifest.h"

#include "base/digest.h"
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "client/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table, summed over the parts seen so far. */
struct sum {
    const char *name; /* of part 0's object */
    char *spec_json;  /* canonical */
    uint64_t rows;
    uint64_t erased; /* keys, in a delta */
    struct rps_digest digest;
};

struct sums {
    struct sum *at;
    size_t count;
};

static void
sums_finish(struct sums *sums)
{
    size_t i;

    for (i = 0; i < sums->count; i++) {
        free(sums->at[i].spec_json);
    }
    free(sums->at);
}

static rps_status
no_field(uint32_t ps, const char *table, const char *field,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_CORRUPT,
            "PS %u: its answer to SAVE has no legal %s%s%s", ps, field,
            table != NULL ? " of table " : "", table != NULL ? table : "");
}

/* One table of one part: its canonical spec, rows and digest. */
static rps_status
read_table(const json_t *table, const char *name, uint32_t ps, struct sum *out,
        struct rps_error *error)
{
    rps_table_spec spec;
    const char *hex = json_string_value(json_object_get(table, "digest"));
    struct rps_error why = {{0}};

    if (rps_spec_from_value(json_object_get(table, "spec"), &spec, &why) !=
            RPS_OK) {
        return rps_fail(error, RPS_E_CORRUPT,
                "PS %u: its answer to SAVE: spec of table %s: %.700s", ps, name,
                why.text);
    }
    if (strcmp(spec.name, name) != 0) {
        return no_field(ps, name, "spec (another name)", error);
    }
    if (!rps_answer_u64(table, "rows", &out->rows)) {
        return no_field(ps, name, "rows", error);
    }
    if (json_object_get(table, "erased") != NULL &&
            !rps_answer_u64(table, "erased", &out->erased)) {
        return no_field(ps, name, "erased", error);
    }
    if (hex == NULL || !rps_digest_parse(hex, &out->digest)) {
        return no_field(ps, name, "digest", error);
    }
    out->name = name;
    out->spec_json = rps_spec_to_json(&spec);
    return out->spec_json != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "out of memory");
}

static struct sum *
sums_find(const struct sums *sums, const char *name)
{
    size_t i;

    for (i = 0; i < sums->count; i++) {
        if (strcmp(sums->at[i].name, name) == 0) {
            return &sums->at[i];
        }
    }
    return NULL;
}

static rps_status
add_table(struct sums *sums, uint32_t ps, const struct sum *part,
        struct rps_error *error)
{
    struct sum *sum = sums_find(sums, part->name);

    if (ps == 0) {
        sums->at[sums->count++] = *part;
        return RPS_OK;
    }
    if (sum == NULL) {
        return rps_fail(error, RPS_E_MISMATCH,
                "PS %u has a table %s that PS 0 has not", ps, part->name);
    }
    if (strcmp(sum->spec_json, part->spec_json) != 0) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: its spec is %.400s at PS 0 and %.400s at PS %u",
                part->name, sum->spec_json, part->spec_json, ps);
    }
    sum->rows += part->rows;
    sum->erased += part->erased;
    rps_digest_add(&sum->digest, part->digest);
    return RPS_OK;
}

static rps_status
add_part(const json_t *part, uint32_t ps, struct sums *sums,
        struct rps_error *error)
{
    json_t *tables = json_object_get(part, "tables");
    const char *name;
    json_t *table;
    rps_status status = RPS_OK;

    if (!json_is_object(tables)) {
        return no_field(ps, NULL, "tables", error);
    }
    if (ps == 0) {
        sums->at = calloc(json_object_size(tables) + 1, sizeof(*sums->at));
        if (sums->at == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "out of memory");
        }
    } else if (json_object_size(tables) != sums->count) {
        return rps_fail(error, RPS_E_MISMATCH,
                "PS %u has %zu tables, PS 0 has %zu; was one of them "
                "restarted?",
                ps, json_object_size(tables), sums->count);
    }
    json_object_foreach(tables, name, table)
    {
        struct sum one = {0};

        status = read_table(table, name, ps, &one, error);
        if (status == RPS_OK) {
            status = add_table(sums, ps, &one, error);
        }
        if (status != RPS_OK || ps > 0) {
            free(one.spec_json);
        }
        if (status != RPS_OK) {
            break;
        }
    }
    return status;
}

static rps_status
check_number(const json_t *part, const char *name, uint64_t expected,
        uint32_t ps, struct rps_error *error)
{
    uint64_t value;

    if (!rps_answer_u64(part, name, &value)) {
        return no_field(ps, NULL, name, error);
    }
    if (value != expected) {
        return rps_fail(error, RPS_E_MISMATCH,
                "PS %u: %s of its part is %" PRIu64 ", must be %" PRIu64, ps,
                name, value, expected);
    }
    return RPS_OK;
}

static rps_status
check_part(const struct rps_manifest_plan *plan, const json_t *part,
        uint32_t ps, struct rps_error *error)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
            {"format", 1},
            {"part", ps},
            {"parts", plan->parts},
            {"step", plan->step},
            {"epoch", plan->epoch},
    };
    rps_status status = RPS_OK;
    size_t i;

    for (i = 0; status == RPS_OK && i < sizeof(numbers) / sizeof(*numbers);
            i++) {
        status = check_number(
                part, numbers[i].name, numbers[i].value, ps, error);
    }
    return status;
}

/* "kind" of a part is left out where it is a full one's. */
static rps_status
check_kind(const struct rps_manifest_plan *plan, const json_t *part,
        uint32_t ps, struct rps_error *error)
{
    const json_t *field = json_object_get(part, "kind");
    const char *kind = field != NULL ? json_string_value(field) : "full";
    const char *expected = plan->parent_name != NULL ? "delta" : "full";

    if (kind == NULL || strcmp(kind, expected) != 0) {
        return rps_fail(error, RPS_E_MISMATCH,
                "PS %u: its part is of kind %s, asked for was %s", ps,
                kind != NULL ? kind : "?", expected);
    }
    return RPS_OK;
}

static uint64_t
bytes_of_files(const json_t *part)
{
    json_t *files = json_object_get(part, "files");
    uint64_t sum = 0;
    const char *name;
    json_t *file;

    json_object_foreach(files, name, file)
    {
        uint64_t bytes = 0;

        (void)rps_answer_u64(file, "bytes", &bytes);
        sum += bytes;
    }
    return sum;
}

/* {"file", "bytes", "xxh3"} of a part, new reference. */
static rps_status
part_entry(const json_t *answer, uint32_t ps, json_t **entry_out,
        struct rps_error *error)
{
    const char *file = json_string_value(json_object_get(answer, "file"));
    const char *xxh3 = json_string_value(json_object_get(answer, "xxh3"));
    uint64_t bytes;

    *entry_out = NULL;
    if (file == NULL) {
        return no_field(ps, NULL, "file", error);
    }
    if (xxh3 == NULL || !rps_answer_u64(answer, "bytes", &bytes)) {
        return no_field(ps, NULL, "bytes or xxh3", error);
    }
    *entry_out = json_pack("{s:s, s:I, s:s}", "file", file, "bytes",
            (json_int_t)bytes, "xxh3", xxh3);
    return *entry_out != NULL ? RPS_OK
                              : rps_fail(error, RPS_E_NOMEM, "out of memory");
}

static json_t *
tables_value(const struct sums *sums)
{
    json_t *tables = json_object();
    size_t i;

    for (i = 0; tables != NULL && i < sums->count; i++) {
        const struct sum *sum = &sums->at[i];
        char hex[RPS_DIGEST_HEX_BYTES];
        json_error_t where;
        json_t *entry = json_pack("{s:o, s:I, s:s}", "spec",
                json_loads(sum->spec_json, 0, &where), "rows",
                (json_int_t)sum->rows, "digest",
                rps_digest_hex(sum->digest, hex));

        if (entry != NULL && sum->erased > 0 &&
                json_object_set_new(entry, "erased",
                        json_integer((json_int_t)sum->erased)) != 0) {
            json_decref(entry);
            entry = NULL;
        }
        if (entry == NULL ||
                json_object_set_new(tables, sum->name, entry) != 0) {
            json_decref(tables);
            return NULL;
        }
    }
    return tables;
}

static bool
digest_hex(const struct sums *sums, char hex[RPS_DIGEST_HEX_BYTES])
{
    struct rps_digest_entry *entries =
            calloc(sums->count + 1, sizeof(*entries));
    size_t i;

    if (entries == NULL) {
        return false;
    }
    for (i = 0; i < sums->count; i++) {
        entries[i] = (struct rps_digest_entry){
                .name = sums->at[i].name,
                .spec_json = sums->at[i].spec_json,
                .digest = sums->at[i].digest,
        };
    }
    (void)rps_digest_hex(rps_digest_checkpoint(entries, sums->count), hex);
    free(entries);
    return true;
}

static json_t *
parent_value(const struct rps_manifest_plan *plan)
{
    return plan->parent_name == NULL
                   ? json_null()
                   : json_pack("{s:s, s:s}", "name", plan->parent_name,
                             "digest", plan->parent_digest);
}

/* Takes the reference to `parts`. */
static char *
manifest_text(const struct rps_manifest_plan *plan, const struct sums *sums,
        json_t *parts)
{
    char hex[RPS_DIGEST_HEX_BYTES] = "";
    char seed[24];
    char *text = NULL;
    json_t *manifest = NULL;
    json_t *position = plan->data_position != NULL
                               ? json_deep_copy(plan->data_position)
                               : json_null();

    (void)snprintf(seed, sizeof(seed), "%" PRIu64, plan->job_seed);
    if (digest_hex(sums, hex)) {
        manifest = json_pack(
                "{s:i, s:s, s:o, s:I, s:I, s:s, s:s, s:O, s:o, s:O, s:s}",
                "format", 1, "kind",
                plan->parent_name != NULL ? "delta" : "full", "parent",
                parent_value(plan), "step", (json_int_t)plan->step, "epoch",
                (json_int_t)plan->epoch, "job_id", plan->job_id, "seed", seed,
                "parts", parts, "tables", tables_value(sums), "data_position",
                position, "digest", hex);
    }
    if (manifest != NULL) {
        text = json_dumps(manifest,
                JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    }
    json_decref(manifest);
    json_decref(position);
    json_decref(parts);
    return text;
}

rps_status
rps_manifest_build(const struct rps_manifest_plan *plan, char **text_out,
        struct rps_error *error)
{
    struct rps_manifest_sums found = {0};
    struct sums sums = {0};
    json_t *parts = json_array();
    rps_status status = parts != NULL
                                ? RPS_OK
                                : rps_fail(error, RPS_E_NOMEM, "out of memory");
    uint32_t ps;

    *text_out = NULL;
    for (ps = 0; status == RPS_OK && ps < plan->parts; ps++) {
        const json_t *part = json_object_get(plan->answers[ps], "part");
        json_t *entry = NULL;

        status = check_part(plan, part, ps, error);
        if (status == RPS_OK) {
            status = check_kind(plan, part, ps, error);
        }
        if (status == RPS_OK) {
            found.bytes += bytes_of_files(part);
            status = add_part(part, ps, &sums, error);
        }
        if (status == RPS_OK) {
            status = part_entry(plan->answers[ps], ps, &entry, error);
        }
        if (status == RPS_OK && json_array_append_new(parts, entry) != 0) {
            status = rps_fail(error, RPS_E_NOMEM, "out of memory");
        }
    }
    for (size_t i = 0; i < sums.count; i++) {
        found.rows += sums.at[i].rows;
        found.erased += sums.at[i].erased;
    }
    if (plan->sums != NULL) {
        *plan->sums = found;
    }
    if (status == RPS_OK) {
        *text_out = manifest_text(plan, &sums, json_incref(parts));
        if (*text_out == NULL) {
            status = rps_fail(error, RPS_E_NOMEM, "out of memory");
        }
    }
    json_decref(parts);
    sums_finish(&sums);
    return status;
}
