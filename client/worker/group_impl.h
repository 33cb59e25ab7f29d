/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a group, for its files: group.c (joining, beginning, ending),
 * group_step.c, group_servers.c. */
#ifndef RPS_WORKER_GROUP_IMPL_H
#define RPS_WORKER_GROUP_IMPL_H

#include "client/worker/group.h"

#include <recps/collective.h>

#define RPS_GROUP_DIM RPS_DENSE_ROW_FLOATS

struct rps_table; /* embedding/table.h */

/** A dense variable here, and what of it goes from rank to rank. */
struct rps_group_variable {
    const struct rps_variable *model; /* name, values, gradients; borrowed */
    struct rps_table *table;
    uint32_t slot_floats; /* of a row */
    float *live;          /* [rows]: 1 where a rank adds; then how many did */
};

struct rps_group {
    const struct rps_settings *settings; /* borrowed */
    rps_collective *collective;
    enum rps_combine combine;
    struct rps_group_variable variables[RPS_MODEL_VARIABLES_MAX];
    uint32_t variable_count;
    uint64_t rows_max; /* of a variable */
    uint64_t *keys;    /* [rows_max] scratch, as are all that follow */
    uint32_t *counts;  /* [rows_max] */
    float *rows;       /* [rows_max][RPS_GROUP_DIM] */
    float *slots;      /* [rows_max][slot floats]; NULL: there are none */
    uint32_t *meta;    /* [rows_max] */
    bool told;         /* that rows were refused */
};

/** The collective's words behind `what`; RPS_OK stays so. */
rps_status rps_group_failed(const struct rps_group *group, rps_status status,
        const char *what, struct rps_error *error);

/** keys[k] = k for all rows of a variable. */
void rps_group_number_keys(struct rps_group *group, uint64_t rows);

/** What the servers restored of variable v, into rows, slots and meta. */
rps_status rps_group_fetch(struct rps_group *group, struct rps_tables *tables,
        uint32_t v, struct rps_error *error);

#endif /* RPS_WORKER_GROUP_IMPL_H */
