/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that name their table in their text. */
#ifndef RPS_SERVER_NAMED_H
#define RPS_SERVER_NAMED_H

#include "server/state.h"

/** The table of the field "table". INVAL: no name; NOT_FOUND. The caller
 * holds state_lock. */
rps_status rps_named_table(struct rps_request *request, const json_t *object,
        struct rps_table **table_out);

#endif /* RPS_SERVER_NAMED_H */
