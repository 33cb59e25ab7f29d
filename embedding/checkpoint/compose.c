/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/compose.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/compose_impl.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES ((size_t)256 << 20)

static json_t *
new_part(const struct rps_ckpt_new *what, uint32_t part)
{
    uint32_t first;
    uint32_t last;

    rps_ckpt_part_slots(part, what->parts, &first, &last);
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:[I, I], s:{}, s:{}}",
            "format", (int)RPS_CKPT_FORMAT, "part", (json_int_t)part, "parts",
            (json_int_t)what->parts, "step", (json_int_t)what->step, "epoch",
            (json_int_t)what->epoch, "slots", (json_int_t)first,
            (json_int_t)last, "tables", "files");
}

/* What another manifest has besides, and what every one has. */
static json_t *
new_manifest(const struct rps_ckpt_new *what)
{
    json_t *root =
            what->like == NULL ? json_object() : json_deep_copy(what->like);
    json_t *own;
    char seed[24];

    snprintf(seed, sizeof(seed), "%" PRIu64, what->job_seed);
    own = json_pack("{s:i, s:s, s:n, s:I, s:I, s:s, s:[], s:{}}", "format",
            (int)RPS_CKPT_FORMAT, "kind", "full", "parent", "step",
            (json_int_t)what->step, "epoch", (json_int_t)what->epoch, "seed",
            seed, "parts", "tables");
    (void)json_object_del(root, "folded");
    if (json_object_get(root, "data_position") == NULL) {
        (void)json_object_set_new(root, "data_position", json_null());
    }
    if (own == NULL || json_object_update(root, own) != 0) {
        json_decref(root);
        root = NULL;
    }
    json_decref(own);
    return root;
}

static rps_status
make_parts(struct rps_ckpt_compose *c, const struct rps_ckpt_new *what,
        struct rps_error *error)
{
    bool good;

    c->manifest = new_manifest(what);
    c->part = calloc(c->parts, sizeof(json_t *));
    c->lanes = calloc(c->parts, sizeof(*c->lanes));
    good = c->manifest != NULL && c->part != NULL && c->lanes != NULL;
    for (uint32_t i = 0; i < c->parts && good; i++) {
        c->part[i] = new_part(what, i);
        good = c->part[i] != NULL;
    }
    return good ? RPS_OK
                : rps_fail(error, RPS_E_NOMEM, "%s: no memory", what->dir);
}

rps_status
rps_ckpt_compose_create(struct rps_ckpt_compose **compose_out,
        const struct rps_ckpt_new *what, struct rps_error *error)
{
    struct rps_ckpt_compose *c;
    const struct rps_checkpoint_id id = {.dir = what->dir,
            .step = what->step,
            .epoch = what->epoch,
            .parts = what->parts};
    rps_status status = rps_ckpt_id_check(&id, error);

    *compose_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", what->dir);
    }
    c->job_seed = what->job_seed;
    c->parts = what->parts;
    c->memory_bytes =
            what->memory_bytes == 0 ? MEMORY_BYTES : what->memory_bytes;
    status = rps_ckpt_beside_open(
            &c->beside, what->dir, what->step, what->epoch, error);
    if (status == RPS_OK) {
        status = make_parts(c, what, error);
    }
    if (status != RPS_OK) {
        rps_ckpt_compose_destroy(c);
        return status;
    }
    *compose_out = c;
    return RPS_OK;
}

rps_status
rps_ckpt_compose_lanes(struct rps_ckpt_compose *compose, uint32_t part,
        const struct rps_lane_record *lanes, size_t count,
        struct rps_error *error)
{
    const struct rps_npy npy = {"<u8", 2, {count, RPS_CKPT_LANE_WORDS}, 0, 0};
    struct rps_ckpt_writer writer;
    char *name = rps_ckpt_lanes_name(part, compose->parts);
    rps_status status;

    assert(!compose->lanes[part]);
    if (name == NULL) {
        return rps_fail(
                error, RPS_E_NOMEM, "%s: no memory", compose->beside.path);
    }
    status = rps_ckpt_writer_open(
            &writer, compose->beside.path, name, &npy, error);
    free(name);
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        const uint64_t words[RPS_CKPT_LANE_WORDS] = {lanes[i].client,
                lanes[i].lane, lanes[i].number,
                (uint64_t)(int64_t)lanes[i].status};

        status = rps_ckpt_writer_add(&writer, words, sizeof(words), error);
    }
    compose->lanes[part] = true;
    if (status == RPS_OK) {
        return rps_ckpt_writer_close(
                &writer, json_object_get(compose->part[part], "files"), error);
    }
    rps_ckpt_writer_discard(&writer);
    return status;
}

static rps_status
write_text(const struct rps_ckpt_compose *c, const char *name,
        const void *bytes, size_t n, struct rps_error *error)
{
    char *path = rps_format("%s/%s", c->beside.path, name);
    rps_status status = path == NULL
                                ? rps_fail(error, RPS_E_NOMEM, "%s: no memory",
                                          c->beside.path)
                                : rps_file_write(path, bytes, n, false, error);

    free(path);
    return status;
}

/* The part file, when all that it lists is on the disk, and what the manifest
 * says of it. */
static rps_status
seal_part(struct rps_ckpt_compose *c, uint32_t i, struct rps_error *error)
{
    char *text = json_dumps(c->part[i], JSON_INDENT(1) | JSON_SORT_KEYS);
    char *name = rps_ckpt_part_name(i, c->parts);
    char hex[17];
    rps_status status = RPS_E_NOMEM;

    if (text == NULL || name == NULL) {
        rps_fail(error, status, "%s: no memory", c->beside.path);
        goto out;
    }
    status = write_text(c, name, text, strlen(text), error);
    snprintf(hex, sizeof(hex), "%016" PRIx64, rps_checksum(text, strlen(text)));
    if (status == RPS_OK &&
            json_array_append_new(json_object_get(c->manifest, "parts"),
                    json_pack("{s:s, s:I, s:s}", "file", name, "bytes",
                            (json_int_t)strlen(text), "xxh3", hex)) != 0) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", c->beside.path);
    }
out:
    free(text);
    free(name);
    return status;
}

/* Sum of what stands in the manifest's tables. */
static rps_status
compute_digest(struct rps_ckpt_compose *c, struct rps_error *error)
{
    json_t *tables = json_object_get(c->manifest, "tables");
    const size_t n = json_object_size(tables);
    struct rps_digest_entry *entries = calloc(n + 1, sizeof(*entries));
    char **texts = calloc(n + 1, sizeof(*texts));
    rps_status status = RPS_OK;
    size_t i = 0;
    const char *name;
    json_t *value;

    if (entries == NULL || texts == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", c->beside.path);
        goto out;
    }
    json_object_foreach(tables, name, value)
    {
        rps_table_spec spec;

        status = rps_spec_read(json_object_get(value, "spec"), &spec, error);
        texts[i] = status == RPS_OK ? rps_spec_to_json(&spec) : NULL;
        entries[i].name = name;
        entries[i].spec_json = texts[i];
        if (texts[i] == NULL ||
                !rps_digest_parse(
                        json_string_value(json_object_get(value, "digest")),
                        &entries[i].digest)) {
            status = status == RPS_OK ? RPS_E_NOMEM : status;
            goto out;
        }
        i++;
    }
    c->digest = rps_digest_checkpoint(entries, n);
out:
    for (i = 0; texts != NULL && i < n; i++) {
        free(texts[i]);
    }
    free(texts);
    free(entries);
    return status;
}

static bool
set_digest(json_t *root, const char *field, struct rps_digest digest)
{
    char hex[RPS_DIGEST_HEX_BYTES];

    return json_object_set_new(
                   root, field, json_string(rps_digest_hex(digest, hex))) == 0;
}

static rps_status
write_manifest(struct rps_ckpt_compose *c, struct rps_error *error)
{
    char *text = json_dumps(c->manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    uint64_t sum;
    rps_status status;

    if (text == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", c->beside.path);
    }
    sum = rps_checksum(text, strlen(text));
    status = write_text(c, RPS_CKPT_MANIFEST ".xxh3", &sum, sizeof(sum), error);
    if (status == RPS_OK) {
        status = write_text(c, RPS_CKPT_MANIFEST, text, strlen(text), error);
    }
    free(text);
    return status == RPS_OK ? rps_dir_sync(c->beside.path, error) : status;
}

rps_status
rps_ckpt_compose_seal(struct rps_ckpt_compose *compose,
        const struct rps_digest *folded, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < compose->parts && status == RPS_OK; i++) {
        if (!compose->lanes[i]) {
            status = rps_ckpt_compose_lanes(compose, i, NULL, 0, error);
        }
    }
    for (uint32_t i = 0; i < compose->parts && status == RPS_OK; i++) {
        status = seal_part(compose, i, error);
    }
    if (status == RPS_OK) {
        status = compute_digest(compose, error);
    }
    if (status == RPS_OK &&
            (!set_digest(compose->manifest, "digest", compose->digest) ||
                    (folded != NULL && !set_digest(compose->manifest, "folded",
                                               *folded)))) {
        status = rps_fail(
                error, RPS_E_NOMEM, "%s: no memory", compose->beside.path);
    }
    return status == RPS_OK ? write_manifest(compose, error) : status;
}

const char *
rps_ckpt_compose_path(const struct rps_ckpt_compose *compose)
{
    return compose->beside.path;
}

struct rps_digest
rps_ckpt_compose_digest(const struct rps_ckpt_compose *compose)
{
    return compose->digest;
}

rps_status
rps_ckpt_compose_install(
        struct rps_ckpt_compose *compose, bool replace, struct rps_error *error)
{
    return rps_ckpt_beside_install(&compose->beside, replace, error);
}

void
rps_ckpt_compose_destroy(struct rps_ckpt_compose *compose)
{
    if (compose == NULL) {
        return;
    }
    rps_ckpt_beside_close(&compose->beside);
    for (uint32_t i = 0; compose->part != NULL && i < compose->parts; i++) {
        json_decref(compose->part[i]);
    }
    free(compose->part);
    free(compose->lanes);
    json_decref(compose->manifest);
    free(compose);
}
