/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two JSON files of a checkpoint, read and checked field by field.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_MANIFEST_H
#define RPS_EMBEDDING_CHECKPOINT_MANIFEST_H

#include "base/digest.h"
#include "base/error.h"
#include "embedding/checkpoint/folder.h"

#include <recps/types.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A table as the manifest or a part says it. */
struct rps_ckpt_table {
    rps_table_spec spec;    /* that a table can be made of */
    rps_table_spec written; /* as it stands there: the digest is over it */
    uint64_t rows;
    struct rps_digest digest;
    uint64_t erased; /* keys; 0 in a full checkpoint */
    /* part files only */
    uint64_t pushes;
    uint64_t admission; /* entries of .admission.npy */
    bool whole; /* all rows of the table in the part's slots; so is a full */
};

/** A part file as the manifest lists it; its name follows from its place. */
struct rps_ckpt_listed {
    uint64_t bytes;
    uint64_t sum;
};

struct rps_ckpt_manifest {
    json_t *root; /* NULL: empty */
    uint64_t step;
    bool is_delta;
    uint64_t parent_step; /* < step; of a delta, as is parent_digest */
    struct rps_digest parent_digest;
    /* of a full one that a tool has made of a delta, in its place: the delta's
     * digest, by which its children know it */
    bool is_folded;
    struct rps_digest folded;
    uint32_t epoch;
    uint64_t job_seed;
    struct rps_digest digest;
    struct rps_ckpt_listed *parts;
    uint32_t part_count;
    struct rps_ckpt_table *tables; /* by name */
    size_t table_count;
};

struct rps_ckpt_part {
    json_t *root;  /* NULL: the file is not there */
    json_t *files; /* borrowed of root */
    uint32_t part;
    uint32_t parts;
    uint32_t slot_first;
    uint32_t slot_last;
    struct rps_ckpt_table *tables;
    size_t table_count;
};

/**
 * `where` names the text in messages. Errors: CORRUPT naming the field,
 * UNSUPPORTED (another format or kind), NOMEM. Finish it on success.
 */
rps_status rps_ckpt_manifest_parse(struct rps_ckpt_manifest *manifest,
        const char *text, size_t n, const char *where, struct rps_error *error);
void rps_ckpt_manifest_finish(struct rps_ckpt_manifest *manifest);

/** manifest.json of a folder, against manifest.json.xxh3. */
rps_status rps_ckpt_manifest_read(struct rps_ckpt_manifest *manifest,
        const struct rps_ckpt_folder *folder, struct rps_error *error);

/**
 * Part file i as the manifest lists it: bytes, checksum, and every field
 * against the manifest. NOT_FOUND where it is missing.
 */
rps_status rps_ckpt_part_read(struct rps_ckpt_part *part,
        const struct rps_ckpt_folder *folder,
        const struct rps_ckpt_manifest *manifest, uint32_t i,
        struct rps_error *error);
void rps_ckpt_part_finish(struct rps_ckpt_part *part);

/** Index of a table, or table_count. */
size_t rps_ckpt_table_find(const struct rps_ckpt_table *tables,
        size_t table_count, const char *name);

/**
 * All parts are here: do their rows, erased keys and digests add up to the
 * manifest's, and is every slot in one part? CORRUPT naming the table or slot.
 */
rps_status rps_ckpt_parts_check(const struct rps_ckpt_manifest *manifest,
        const struct rps_ckpt_part *parts, const struct rps_ckpt_folder *folder,
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_MANIFEST_H */
