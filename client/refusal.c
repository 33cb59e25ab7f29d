/* SPDX-License-Identifier: Apache-2.0 */
#include "client/refusal.h"

#include <stdlib.h>

rps_status
rps_refusal_status(const struct rps_message *reply)
{
    return reply->header.status >= (int32_t)RPS_STATUS_LAST
                   ? (rps_status)reply->header.status
                   : RPS_E_UNSUPPORTED;
}

char *
rps_refusal_words(const struct rps_message *reply)
{
    char *text = rps_message_text(reply);
    char *at;

    for (at = text; at != NULL && *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = ' ';
        }
    }
    return text;
}

rps_status
rps_refusal_fail(const struct rps_message *reply, struct rps_error *error)
{
    const rps_status status = rps_refusal_status(reply);
    char *words = rps_refusal_words(reply);

    (void)rps_fail(error, status, "%s",
            words != NULL ? words : rps_status_str(status));
    free(words);
    return status;
}
