/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two ways of answering a lookup share: whole (lookup.c), and in
 * parts that are sent while the next are made (lookup_stream.c).
 */
#ifndef RPS_SERVER_LOOKUP_H
#define RPS_SERVER_LOOKUP_H

#include "server/sections.h"
#include "server/state.h"

/** Keys first .. first + n - 1 of a part to rows[n][dim]. */
void rps_lookup_read(const struct rps_request *request,
        const struct rps_table_part *part, uint64_t first, uint64_t n,
        float *rows);

/**
 * Send the answer in parts. false: nothing was done, for it is short, or has
 * sums of bags, words or a checksum, or nobody takes it so.
 */
bool rps_lookup_stream(
        struct rps_request *request, const struct rps_parts *parts);

#endif /* RPS_SERVER_LOOKUP_H */
