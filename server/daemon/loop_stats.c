/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/loop_stats.h"

#include <stdlib.h>
#include <string.h>

#define TIME_LOG2_LEAST 10u /* 1024 ns */

struct rps_loop_stats *
rps_loop_stats_create(void)
{
    struct rps_loop_stats *stats = aligned_alloc(64, sizeof(*stats));

    if (stats != NULL) {
        memset(stats, 0, sizeof(*stats));
    }
    return stats;
}

/* Position of the highest bit, n > 0. */
static uint32_t
log2_of(uint64_t n)
{
    return 63u - (uint32_t)__builtin_clzll(n);
}

uint32_t
rps_time_bucket(uint64_t ns)
{
    uint32_t octave;

    if (ns >> TIME_LOG2_LEAST == 0) {
        return 0;
    }
    octave = log2_of(ns) - TIME_LOG2_LEAST;
    if (octave >= RPS_TIME_OCTAVES) {
        return RPS_TIME_BUCKETS - 1;
    }
    return 1 + 4 * octave +
           (uint32_t)(ns >> (octave + TIME_LOG2_LEAST - 2) & 3);
}

uint64_t
rps_time_bucket_begin(uint32_t bucket)
{
    return bucket == 0 ? 0
                       : (uint64_t)(4 + (bucket - 1) % 4)
                                 << (TIME_LOG2_LEAST - 2 + (bucket - 1) / 4);
}

uint32_t
rps_size_bucket(uint64_t n)
{
    uint32_t bucket = n <= 1 ? 0 : (log2_of(n - 1) + 2) / 2;

    return bucket < RPS_SIZE_BUCKETS ? bucket : RPS_SIZE_BUCKETS - 1;
}

void
rps_loop_stats_reply(struct rps_loop_stats *stats, uint16_t opcode,
        int32_t status, uint64_t ns)
{
    const uint32_t op = opcode <= RPS_OP_LAST ? opcode : 0;
    const int32_t code = status <= 0 && status >= RPS_STATUS_LAST ? -status : 0;
    struct rps_time_histogram *times = &stats->times[op];

    rps_stat_add(&stats->replies[op][code], 1);
    rps_stat_add(&times->buckets[rps_time_bucket(ns)], 1);
    rps_stat_add(&times->ns, ns);
}

void
rps_loop_stats_keys(struct rps_loop_stats *stats, uint16_t opcode, uint64_t n)
{
    struct rps_size_histogram *keys =
            &stats->keys[opcode <= RPS_OP_LAST ? opcode : 0];

    rps_stat_add(&keys->buckets[rps_size_bucket(n)], 1);
    rps_stat_add(&keys->sum, n);
}
