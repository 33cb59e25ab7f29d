/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision ni: an operator of two dumps, as a table or as JSON. */
#ifndef RPS_CLIENT_CLI_PRECISION_NI_H
#define RPS_CLIENT_CLI_PRECISION_NI_H

#include "client/precision/ni.h"

#include <jansson.h>

struct rps_ni_side {
    struct rps_dumped *dumped; /* NULL: there is no such side */
    const char *title;         /* "debug_0" */
    uint32_t step_count;       /* of its dump */
    struct rps_ni_found found;
};

struct rps_ni {
    struct rps_ni_side sides[2];
    char *paths[2];
    const char *attribute; /* show those alone; NULL: all */
    bool json;
    bool differs;    /* something that was shown does; set by what shows */
    bool damaged;    /* a file of it is damaged or missing; likewise */
    char *dot, *svg; /* what was drawn; NULL: nothing */
};

/** Of one side, or of both. */
struct rps_ni_pair {
    const struct rps_dumped_operator *op[2]; /* NULL: that side has it not */
};

/** Add it to stdout. false: no memory, or stdout is gone. */
bool rps_ni_pair_print(struct rps_ni *ni, const struct rps_ni_pair *pair);

/** NULL: no memory. */
json_t *rps_ni_pair_json(struct rps_ni *ni, const struct rps_ni_pair *pair);

#endif /* RPS_CLIENT_CLI_PRECISION_NI_H */
