/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what the bags of a request mean. Leaves which rows there are to
 * lookup.c, and what becomes of gradients to push.c.
 */
#include "server/bags.h"

#include "proto/value.h"
#include "server/sections.h"

#include <inttypes.h>
#include <string.h>

static rps_status
check_offsets(const struct rps_table_part *part, uint64_t occurrences,
        struct rps_error *error)
{
    const uint32_t *offsets = part->bags.offsets;
    const uint64_t count = part->bags.count;

    if (offsets[0] != 0 || offsets[count] != occurrences) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: OFFSETS go from %" PRIu32 " to %" PRIu32
                ", must go from 0 to %" PRIu64,
                part->spec->name, offsets[0], offsets[count], occurrences);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (offsets[i] > offsets[i + 1]) {
            return rps_fail(error, RPS_E_INVAL,
                    "table %s: OFFSETS are not ascending: %" PRIu32
                    " at position %" PRIu64 ", then %" PRIu32,
                    part->spec->name, offsets[i], i, offsets[i + 1]);
        }
    }
    return RPS_OK;
}

static rps_status
check_index(const struct rps_table_part *part, struct rps_error *error)
{
    const uint32_t *index = part->bags.index;

    for (uint64_t i = 0; index != NULL && i < part->index->count; i++) {
        if (index[i] >= part->keys->count) {
            return rps_fail(error, RPS_E_INVAL,
                    "table %s: INDEX at position %" PRIu64 " is %" PRIu32
                    ", but there are %" PRIu64 " keys",
                    part->spec->name, i, index[i], part->keys->count);
        }
    }
    return RPS_OK;
}

rps_status
rps_wire_bags_open(const struct rps_message *message,
        struct rps_table_part *part, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (part->offsets == NULL && part->index == NULL) {
        return RPS_OK;
    }
    if (part->offsets == NULL || part->offsets->count == 0) {
        return rps_fail(error, RPS_E_INVAL, "table %s: %s", part->spec->name,
                part->offsets == NULL
                        ? "INDEX without OFFSETS: which bags are meant?"
                        : "OFFSETS are empty; no bags are one offset, 0");
    }
    part->bags.count = part->offsets->count - 1;
    part->bags.offsets = rps_message_array(message, part->offsets);
    if (part->index != NULL) {
        part->bags.index = rps_message_array(message, part->index);
    }
    status = check_offsets(part,
            part->index != NULL ? part->index->count : part->keys->count,
            error);
    return status == RPS_OK ? check_index(part, error) : status;
}

static rps_status
fail_size(const struct rps_table_part *part, const char *what, uint64_t most,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_LIMIT,
            "%s would exceed %" PRIu64 " at table %s: send less at once", what,
            most, part->spec->name);
}

rps_status
rps_wire_bags_check_size(const struct rps_parts *parts, struct rps_error *error)
{
    uint64_t bytes = 0;
    uint64_t floats = 0;

    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];
        const bool grows =
                part->offsets != NULL ||
                (part->rows != NULL && part->rows->value != RPS_VALUE_F32);

        if (part->status != RPS_OK || !grows) {
            continue;
        }
        /* no overflow: count <= 2^22, dim <= 2^13 */
        bytes += part->keys->count * part->spec->dim * sizeof(float);
        if (bytes > RPS_BODY_BYTES_MAX) {
            return fail_size(part, "the bytes of its keys' rows as floats",
                    RPS_BODY_BYTES_MAX, error);
        }
        if (part->offsets != NULL) {
            floats += (uint64_t)part->bags.offsets[part->bags.count] *
                      part->spec->dim;
        }
        if (floats > RPS_BAG_FLOATS_MAX) {
            return fail_size(part,
                    "what its bags add up, occurrences times dim,",
                    RPS_BAG_FLOATS_MAX, error);
        }
    }
    return RPS_OK;
}

static inline const float *
row_of(const struct rps_wire_bags *bags, uint32_t occurrence, uint32_t dim,
        const float *rows)
{
    const uint64_t key =
            bags->index != NULL ? bags->index[occurrence] : occurrence;

    return rows + key * dim;
}

static void
add(float *restrict sum, const float *restrict row, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++) {
        sum[i] += row[i];
    }
}

/* The first row is copied, so that a bag of one is that row, -0.0 and all. */
static void
sum_bag(const struct rps_wire_bags *bags, uint64_t bag, uint32_t dim,
        const float *rows, float *sum)
{
    const uint32_t end = bags->offsets[bag + 1];
    uint32_t at = bags->offsets[bag];

    if (at == end) {
        memset(sum, 0, dim * sizeof(*sum));
        return;
    }
    memcpy(sum, row_of(bags, at, dim, rows), dim * sizeof(*sum));
    for (at++; at < end; at++) {
        add(sum, row_of(bags, at, dim, rows), dim);
    }
}

void
rps_wire_bags_pool(const struct rps_wire_bags *bags, uint64_t first, uint64_t n,
        uint32_t dim, const float *rows, uint16_t value, void *to)
{
    const size_t bytes = (size_t)rps_value_row_bytes(value, dim);
    float sum[RPS_DIM_MAX];
    uint8_t *out = to;

    for (uint64_t bag = first; bag < first + n; bag++, out += bytes) {
        sum_bag(bags, bag, dim, rows, sum);
        rps_value_encode(value, dim, 1, sum, out);
    }
}

void
rps_wire_bags_spread(const struct rps_wire_bags *bags, uint64_t first,
        uint64_t n, uint32_t dim, uint16_t value, const void *rows, float *sums,
        bool *seen)
{
    const size_t bytes = (size_t)rps_value_row_bytes(value, dim);
    const uint8_t *from = (const uint8_t *)rows + first * bytes;
    float gradient[RPS_DIM_MAX];

    for (uint64_t bag = first; bag < first + n; bag++, from += bytes) {
        rps_value_decode(value, dim, 1, from, gradient);
        for (uint32_t o = bags->offsets[bag]; o < bags->offsets[bag + 1]; o++) {
            const uint64_t key = bags->index != NULL ? bags->index[o] : o;

            if (seen[key]) {
                add(sums + key * dim, gradient, dim);
            } else {
                memcpy(sums + key * dim, gradient, dim * sizeof(*sums));
                seen[key] = true;
            }
        }
    }
}
