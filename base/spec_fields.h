/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spec's fields as data, so that its JSON form and its comparison cannot
 * forget one. Private to base/spec*.c.
 */
#ifndef RPS_BASE_SPEC_FIELDS_H
#define RPS_BASE_SPEC_FIELDS_H

#include "base/error.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>

enum rps_field_type {
    RPS_FIELD_NAME,
    RPS_FIELD_U32,
    RPS_FIELD_U64,
    RPS_FIELD_SEED, /* u64 as a decimal string: all 64 bits survive JSON */
    RPS_FIELD_F32,
    RPS_FIELD_ENUM
};

struct rps_spec_field {
    const char *name;
    enum rps_field_type type;
    size_t offset;
    bool identity;
    const char *const *names; /* of an enum's values, NULL-terminated */
};

const struct rps_spec_field *rps_spec_fields(size_t *count_out);
size_t rps_spec_field_bytes(const struct rps_spec_field *field);

/** The rules of admission, eviction and budgets. */
rps_status rps_spec_check_policy(
        const rps_table_spec *spec, struct rps_error *error);

#endif /* RPS_BASE_SPEC_FIELDS_H */
