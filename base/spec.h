/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table's spec as JSON (the wire and the manifest), and what differs
 * between two. Canonical JSON: compact, keys sorted, floats "%.9g",
 * 64-bit seeds as decimal strings; a field that the first release did not have
 * is left out at its default.
 */
#ifndef RPS_BASE_SPEC_H
#define RPS_BASE_SPEC_H

#include "base/error.h"

#include <recps/types.h>

#include <jansson.h>
#include <stdbool.h>

/**
 * Bytes: no table works within less. Four regions of 2 MiB: one for its
 * index, one for its rows, one for what is smaller than a page, and the first
 * 16 rows of each of 64 shards, which are one region at least. What a table
 * of long rows or with a sketch needs beyond it is known when it is made.
 */
#define RPS_MEMORY_LIMIT_MIN ((uint64_t)8 << 20)

/** New canonical text; free(). NULL: no memory. */
char *rps_spec_to_json(const rps_table_spec *spec);

/** The same as a JSON value: files and digests (new reference). */
json_t *rps_spec_to_canonical(const rps_table_spec *spec);

/** Every field, also those that canonical JSON leaves out: to be shown. */
json_t *rps_spec_to_value(const rps_table_spec *spec);

/**
 * Read and check. Unknown fields and wrong types are refused by name; absent
 * fields take their defaults (rps_table_spec_init).
 */
rps_status rps_spec_from_value(
        const json_t *value, rps_table_spec *spec, struct rps_error *error);

/** The same without rps_table_spec_check(): what stands there, as it is. */
rps_status rps_spec_read(
        const json_t *value, rps_table_spec *spec, struct rps_error *error);

/**
 * Numbers that have no part in the spec's optimizer back to their defaults:
 * the first version let them be anything.
 */
void rps_spec_reset_idle(rps_table_spec *spec);

/**
 * Of a spec in a file that is whole: a field or a kind (optimizer,
 * value_dtype, ...) that a later version has written is UNSUPPORTED by name.
 */
rps_status rps_spec_check_known(const json_t *value, struct rps_error *error);

/**
 * *to is *from with these fields (a JSON object) replaced, and is checked.
 * Errors: INVAL (no field of this name, a value out of range, nothing to
 * change), MISMATCH (an identity field), UNSUPPORTED, NOMEM; *to is undefined.
 */
rps_status rps_spec_alter(const rps_table_spec *from, const json_t *fields,
        rps_table_spec *to, struct rps_error *error);

/** First field in which the identities differ, or NULL. */
const char *rps_spec_identity_differs(
        const rps_table_spec *a, const rps_table_spec *b);

/** First policy field that differs, or NULL. */
const char *rps_spec_policy_differs(
        const rps_table_spec *a, const rps_table_spec *b);

/**
 * A row in memory: value[dim] of the value type, padded to 4 bytes, then the
 * floats of slot 0, of slot 1. All of a spec that rps_table_spec_check() let
 * pass.
 */
size_t rps_spec_value_bytes(const rps_table_spec *spec); /* padding included */
size_t rps_spec_row_bytes(const rps_table_spec *spec);

/** Number of slot arrays and their names: "accumulator"; "m", "v"; ... */
uint32_t rps_spec_slot_count(const rps_table_spec *spec);
const char *rps_spec_slot_name(const rps_table_spec *spec, uint32_t slot);

/** Floats of one slot (dim; rowwise_adagrad 1), and of all of them. */
uint32_t rps_spec_slot_width(const rps_table_spec *spec, uint32_t slot);
uint32_t rps_spec_slot_floats(const rps_table_spec *spec);

const char *rps_optimizer_str(enum rps_optimizer optimizer);
bool rps_optimizer_parse(const char *name, enum rps_optimizer *out);
const char *rps_initializer_str(enum rps_initializer initializer);

#endif /* RPS_BASE_SPEC_H */
