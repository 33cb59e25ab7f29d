/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and shapes of a checkpoint's files: what docs/CHECKPOINT.md says,
 * in one place for the writer and the readers.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_LAYOUT_H
#define RPS_EMBEDDING_CHECKPOINT_LAYOUT_H

#include "base/error.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_CKPT_FORMAT         1u
#define RPS_CKPT_BLOCK_BYTES    (1u << 20)  /* one checksum a block */
#define RPS_CKPT_JSON_BYTES_MAX (16u << 20) /* manifest, part file */
#define RPS_CKPT_NAME_BYTES_MAX 255u
#define RPS_CKPT_COLUMNS_MAX    10u
#define RPS_CKPT_MANIFEST       "manifest.json"
#define RPS_CKPT_ARCHIVED       "archived" /* tables that were rounded */
#define RPS_CKPT_LANE_WORDS     4u
#define RPS_CKPT_DELTAS_MAX     16u /* behind a full checkpoint */

enum rps_ckpt_kind {
    RPS_CKPT_KEYS,
    RPS_CKPT_ROWS,
    RPS_CKPT_SLOT,
    RPS_CKPT_USES,
    RPS_CKPT_LAST
};

/** One file of a table: an array with an entry a row. */
struct rps_ckpt_column {
    enum rps_ckpt_kind kind;
    uint32_t slot_offset; /* of RPS_CKPT_SLOT: floats of slots before it */
    uint32_t width; /* items a row; 0: one, the array is one-dimensional */
    uint32_t item_bytes;
    char dtype[8];
    char suffix[64]; /* "keys", "slot-accumulator", … */
};

/** Fills columns[RPS_CKPT_COLUMNS_MAX], returns their number. */
uint32_t rps_ckpt_columns(
        const rps_table_spec *spec, struct rps_ckpt_column *columns);

/** Bytes of one row in this column. */
size_t rps_ckpt_column_bytes(const struct rps_ckpt_column *column);

/* New strings (free()), NULL: no memory. */
char *rps_ckpt_tmp_path(const char *dir, uint64_t step, uint32_t epoch);
char *rps_ckpt_old_path(const char *dir, uint64_t step, uint32_t epoch);
char *rps_ckpt_part_name(uint32_t part, uint32_t parts);
/** Behind what is said of the first part that cannot be read: each is named. */
void rps_ckpt_name_another(
        struct rps_error *error, uint32_t part, uint32_t parts);
char *rps_ckpt_lanes_name(uint32_t part, uint32_t parts);
char *rps_ckpt_column_name(const char *table, uint32_t part, uint32_t parts,
        const struct rps_ckpt_column *column);
char *rps_ckpt_admission_name(const char *table, uint32_t part, uint32_t parts);
char *rps_ckpt_erased_name(const char *table, uint32_t part, uint32_t parts);

/** "ckpt-<step>", exactly as rps_checkpoint_path writes it. */
bool rps_ckpt_parse_step(const char *name, uint64_t *step);

/** "<prefix><step>-<epoch>" with one of the prefixes below. */
#define RPS_CKPT_TMP_PREFIX ".tmp-ckpt-" /* being written */
#define RPS_CKPT_OLD_PREFIX ".old-ckpt-" /* being removed */
bool rps_ckpt_parse_hidden(
        const char *name, const char *prefix, uint64_t *step, uint32_t *epoch);

/**
 * A name that may stand in a part file: "x" or "table-x/y" of letters,
 * digits and "_.-", no part of it starting with a dot.
 */
bool rps_ckpt_name_is_plain(const char *name);

/** Slots that a part holds at the fixed route: first..last. */
void rps_ckpt_part_slots(
        uint32_t part, uint32_t parts, uint32_t *first, uint32_t *last);

/** INVAL: no folder, or a part, a number of parts or a step that is none. */
struct rps_checkpoint_id;
rps_status rps_ckpt_id_check(
        const struct rps_checkpoint_id *id, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_LAYOUT_H */
