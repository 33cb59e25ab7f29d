/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as an operator writes them. */
#ifndef RPS_CLIENT_CLI_KEY_H
#define RPS_CLIENT_CLI_KEY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** "18446744073709551615", "-1" (as a 64-bit id with sign) or "0xff". */
bool rps_key_parse(const char *text, uint64_t *key_out);

/** "-5" and "-.5" are operands, no flags. */
bool rps_key_is_negative(const char *text);

/** As text: JSON's readers round numbers above 2^53. */
json_t *rps_key_json(uint64_t key);

#endif /* RPS_CLIENT_CLI_KEY_H */
