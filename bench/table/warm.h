/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is timed is touched before. The host of a virtual machine may map a
 * page of its own when it is first read, which takes several hundred ns each
 * time until it was read a few times, and is no property of a table.
 */
#ifndef RPS_BENCH_TABLE_WARM_H
#define RPS_BENCH_TABLE_WARM_H

#include "bench/table/fixture.h"
#include "bench/table/peers.h"

#define BENCH_WARM_PASSES 3u /* over all keys, and over all pages */

/** The table, by lookups of all keys, and each page of 4 KiB of the bare
 * arrays. Errors: NOMEM. */
rps_status bench_warm_fixture(struct bench_fixture *fixture);

/** The same of a peer. Errors: NOMEM. */
rps_status bench_warm_peer(
        struct bench_fixture *fixture, const struct bench_peer *peer);

#endif /* RPS_BENCH_TABLE_WARM_H */
