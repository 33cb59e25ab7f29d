/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/key.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool
rps_key_is_negative(const char *text)
{
    const char *digit = text + 1 + (text[0] == '-' && text[1] == '.');

    return text[0] == '-' && *digit >= '0' && *digit <= '9';
}

bool
rps_key_parse(const char *text, uint64_t *key_out)
{
    int64_t number = 0;

    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return strlen(text) <= 18 && rps_parse_hex64(text + 2, key_out);
    }
    if (text[0] == '-') {
        if (!rps_parse_i64(text, &number)) {
            return false;
        }
        *key_out = (uint64_t)number;
        return true;
    }
    return rps_parse_u64(text, key_out);
}

json_t *
rps_key_json(uint64_t key)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, key);
    return json_string(text);
}
