/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reply that is not OK says. Its words are foreign bytes.
 */
#ifndef RPS_CLIENT_REFUSAL_H
#define RPS_CLIENT_REFUSAL_H

#include "proto/message.h"

/** Its status; UNSUPPORTED for one that this version does not know. */
rps_status rps_refusal_status(const struct rps_message *reply);

/** Its text in one line, without control characters; new, NULL: none. */
char *rps_refusal_words(const struct rps_message *reply);

/** Both, as a failure. */
rps_status rps_refusal_fail(
        const struct rps_message *reply, struct rps_error *error);

#endif /* RPS_CLIENT_REFUSAL_H */
