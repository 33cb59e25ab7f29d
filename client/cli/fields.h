/* SPDX-License-Identifier: Apache-2.0 */
/* FIELD=VALUE of a table's spec, as an operator writes it. */
#ifndef RPS_CLIENT_CLI_FIELDS_H
#define RPS_CLIENT_CLI_FIELDS_H

#include "client/cli/tool.h"

/** Add the field to the object. Returns an exit code; what is wrong has been
 * said. */
int rps_fields_add(const char *tool, json_t *fields, const char *word);

#endif /* RPS_CLIENT_CLI_FIELDS_H */
