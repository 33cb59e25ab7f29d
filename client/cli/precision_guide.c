/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/precision_guide.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

char *
rps_guide_path(const char *folder, const char *part)
{
    return rps_format(
            "%s/%s", folder != NULL ? folder : RPS_GUIDE_FOLDER, part);
}

int
rps_guide_number(const char *tool, const struct rps_tool_flag *flag,
        uint64_t most, uint64_t *value)
{
    if (flag->value == NULL) {
        return RPS_TOOL_OK;
    }
    return rps_parse_u64(flag->value, value) && *value <= most
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_USAGE, tool,
                             "--%s %s: must be from 0 to %" PRIu64, flag->name,
                             flag->value, most);
}

const char *
rps_guide_shortest(double number, char text[RPS_GUIDE_NUMBER])
{
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, RPS_GUIDE_NUMBER, "%.*g", digits, number);
        if (strtod(text, NULL) == number) {
            break;
        }
    }
    return text;
}

int
rps_guide_cosine(
        const char *tool, const struct rps_tool_flag *flag, double *value)
{
    if (flag->value == NULL) {
        return RPS_TOOL_OK;
    }
    return rps_parse_double(flag->value, value) && fabs(*value) <= 1.0
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_USAGE, tool,
                             "--%s %s: must be from -1 to 1", flag->name,
                             flag->value);
}
