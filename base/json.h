/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What jansson leaves to its callers: text of a value that is then released,
 * and numbers as the wire and the files have them.
 */
#ifndef RPS_BASE_JSON_H
#define RPS_BASE_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** Compact text of a value, which is released; free(). NULL: no memory. */
char *rps_json_text(json_t *value);

/** A number; null where it is not finite, for which JSON has none. */
json_t *rps_json_real(double value);

/** An integer >= 0. False, *out unchanged: it is none. */
bool rps_json_count(const json_t *value, uint64_t *out);

/** The same, or a decimal string: for what may exceed 2^53. */
bool rps_json_whole(const json_t *value, uint64_t *out);

/** Such a field of an object; absent or null: *value is unchanged. INVAL names
 * the field and what it may be. */
rps_status rps_json_u64(const json_t *object, const char *key, uint64_t max,
        uint64_t *value, struct rps_error *error);

#endif /* RPS_BASE_JSON_H */
