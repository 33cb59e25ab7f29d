/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/variable_operator.h"

#include <stdio.h>
#include <string.h>

/* "top.2.weight" of the suffix ".weight" is of the layer "top.2". */
static bool
layer_of(const char *table, const char *suffix, int *length_out)
{
    const size_t length = strlen(table);
    const size_t end = strlen(suffix);

    if (length <= end || strcmp(table + length - end, suffix) != 0 ||
            length >= RPS_VARIABLE_OPERATOR_BYTES - 32) {
        return false;
    }
    *length_out = (int)(length - end);
    return true;
}

static void
put(char *out, int length, const char *layer, const char *type)
{
    (void)snprintf(
            out, RPS_VARIABLE_OPERATOR_BYTES, "%.*s/%s", length, layer, type);
}

struct rps_variable_operator
rps_variable_operator_of(const char *table, bool dense)
{
    struct rps_variable_operator who = {.known = false};
    int length = (int)strnlen(table, RPS_VARIABLE_OPERATOR_BYTES - 32);

    if (!dense) {
        put(who.gradient, length, table, "pooling_backward");
        who.known = true;
    } else if (layer_of(table, ".weight", &length)) {
        /* a projection is known by its table's name */
        const int skipped = strncmp(table, "proj.", 5) == 0 ? 5 : 0;

        table += skipped;
        length -= skipped;
        put(who.gradient, length, table, "linear_backward");
        put(who.part, length, table, "linear_dweight");
        who.known = true;
    } else if (layer_of(table, ".bias", &length)) {
        put(who.gradient, length, table, "linear_backward");
        put(who.part, length, table, "linear_dbias");
        who.known = true;
    }
    return who;
}
