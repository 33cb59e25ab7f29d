/* SPDX-License-Identifier: Apache-2.0 */
/* What job.c and job_begin.c have in common. */
#ifndef RPS_CLIENT_JOB_IMPL_H
#define RPS_CLIENT_JOB_IMPL_H

#include "client/handle.h"

#include <jansson.h>

/** INVAL where the client is no replica of a job, or is to be its chief and is
 * not; UNREACHABLE where a server is lost. */
rps_status rps_job_check_member(const rps_client *client, bool chief);

/** CORRUPT: the answer of a PS lacks a field. */
rps_status rps_job_malformed(
        const rps_client *client, uint32_t ps, const char *field);

/** "data_position" of an answer as text; *out is free()d by the caller. */
rps_status rps_job_read_position(const json_t *object, char **out);

/** For people: what is no plain text becomes '?'; cut to fit. */
void rps_job_copy_reason(char reason[RPS_REASON_BYTES], const char *text);

#endif /* RPS_CLIENT_JOB_IMPL_H */
