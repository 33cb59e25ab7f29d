/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections of a request, grouped a table and checked: kinds, counts,
 * dims, bags, who owns the keys.
 */
#ifndef RPS_SERVER_SECTIONS_H
#define RPS_SERVER_SECTIONS_H

#include "server/bags.h"
#include "server/state.h"

#define RPS_KIND_BIT(kind) (1u << (kind))

struct rps_table_part {
    uint64_t table_id;
    struct rps_table *table; /* NULL: unknown here */
    const rps_table_spec *spec;
    const struct rps_section *keys, *counts, *rows, *slots, *meta;
    const struct rps_section *offsets, *index; /* of bags; NULL: none */
    struct rps_wire_bags bags;                 /* where offsets is set */
    rps_status status;                         /* of this table */
};

struct rps_parts {
    struct rps_table_part *items;
    size_t count;
};

/**
 * Group the sections of a message by table, in the order of their KEYS.
 * required, allowed: bits of kinds; TEXT and DECISION are passed over.
 * Wrong sections are the result; what is wrong with one table is in its
 * part, the first of them in words. The caller holds state_lock.
 */
rps_status rps_parts_collect(struct rps_service *service,
        const struct rps_message *message, uint32_t required, uint32_t allowed,
        struct rps_parts *parts, struct rps_error *error);
void rps_parts_finish(struct rps_parts *parts);

/** Rows that go with a part's keys: one a bag, else one a key. */
uint64_t rps_part_rows(const struct rps_table_part *part);

/** First status of a table that is not OK. */
rps_status rps_parts_status(const struct rps_parts *parts);

#endif /* RPS_SERVER_SECTIONS_H */
