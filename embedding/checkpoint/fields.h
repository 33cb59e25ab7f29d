/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a checkpoint's JSON: what both of its files have in common. */
#ifndef RPS_EMBEDDING_CHECKPOINT_FIELDS_H
#define RPS_EMBEDDING_CHECKPOINT_FIELDS_H

#include "embedding/checkpoint/manifest.h"

#include <jansson.h>
#include <stdbool.h>

/** CORRUPT: where: "field" is not <wanted>. */
rps_status rps_ckpt_bad_field(struct rps_error *error, const char *where,
        const char *field, const char *wanted);

/* False: not there, another type, or out of range. */
bool rps_ckpt_get_u64(
        const json_t *object, const char *field, uint64_t max, uint64_t *out);
bool rps_ckpt_get_u64_text(
        const json_t *object, const char *field, uint64_t *out);
bool rps_ckpt_get_digest(
        const json_t *object, const char *field, struct rps_digest *out);

/** bytes and xxh3 of one entry {"bytes": 1, "xxh3": "16 hex digits"}. */
bool rps_ckpt_listed_parse(const json_t *value, struct rps_ckpt_listed *listed);

/** The text as JSON of this format; else CORRUPT or UNSUPPORTED. */
rps_status rps_ckpt_load_root(const char *text, size_t n, const char *where,
        json_t **root_out, struct rps_error *error);

/** Which file, of which kind of checkpoint, a table stands in. */
struct rps_ckpt_place {
    const char *where; /* in messages */
    bool in_part;
    bool in_delta;
};

/** "tables"; free(*tables_out), also on error. */
rps_status rps_ckpt_parse_tables(const json_t *root,
        const struct rps_ckpt_place *place, struct rps_ckpt_table **tables_out,
        size_t *count_out, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_FIELDS_H */
