/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HCCL rank table (version 1.0) and the topology that its hosts stand in:
 * two JSON files, checked against each other, and the table written anew
 * with another order of ranks. docs/RANKTABLE.md has both forms.
 */
#ifndef RPS_CONF_RANKTABLE_H
#define RPS_CONF_RANKTABLE_H

#include "base/error.h"
#include "conf/ring.h"

#include <jansson.h>
#include <stdint.h>

#define RPS_RANKTABLE_BYTES_MAX (1u << 20) /* of either file */

/** Zeroed is empty. */
struct rps_ranktable {
    json_t *root;              /* as read */
    const char **host_names;   /* [host_count], server_id, in root */
    const char **device_ids;   /* [rank_count], of each rank; in root */
    json_t **devices;          /* [rank_count], borrowed from root */
    json_t *topology;          /* as read */
    const char **switch_names; /* [switch_count], in topology */
    struct rps_ring ring;      /* rank r is the table's rank_id r */
};

/**
 * Read and check a rank table; ring has ranks and hosts, no switches.
 *
 * Errors: IO, NOT_FOUND, LIMIT for the file; CORRUPT in words that name the
 * file, the field and what to do.
 */
rps_status rps_ranktable_read(
        struct rps_ranktable *table, const char *path, struct rps_error *error);

/** Then its topology: ring's switches. Hosts without ranks are left out. */
rps_status rps_ranktable_read_topology(
        struct rps_ranktable *table, const char *path, struct rps_error *error);

/**
 * The table with rank_id = place in order, servers and devices in that order,
 * everything else as it was. free(); NULL: no memory. root is changed, too;
 * names and ring stay.
 */
char *rps_ranktable_text(struct rps_ranktable *table, const uint32_t *order);

void rps_ranktable_finish(struct rps_ranktable *table);

/** A JSON object of a file. Errors name the file and the line. */
rps_status rps_ranktable_load(
        const char *path, json_t **root_out, struct rps_error *error);

/** object[field] as text of 1 to 255 printable bytes, or NULL. */
const char *rps_ranktable_name(const json_t *object, const char *field);

#endif /* RPS_CONF_RANKTABLE_H */
