/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/stat_times.h"

#include "server/daemon/loop_sums.h"

/* Nanoseconds at which a bucket begins (loop_stats.h). */
static json_int_t
begin_of(uint32_t bucket)
{
    if (bucket == 0) {
        return 0;
    }
    bucket -= 1;
    return (json_int_t)(4 + bucket % 4) << (8 + bucket / 4);
}

/* [from, below, count]; below is 0 for the last: it has no end. */
static json_t *
buckets_of(const struct rps_view *view, uint16_t op, json_int_t *count_out)
{
    json_t *list = json_array();

    *count_out = 0;
    for (uint32_t i = 0; i < RPS_TIME_BUCKETS; i++) {
        const json_int_t n =
                (json_int_t)RPS_LOOPS_SUM(view, times[op].buckets[i]);

        *count_out += n;
        if (n > 0) {
            json_array_append_new(
                    list, json_pack("[I, I, I]", begin_of(i),
                                  i + 1 < RPS_TIME_BUCKETS ? begin_of(i + 1)
                                                           : (json_int_t)0,
                                  n));
        }
    }
    return list;
}

void
rps_stat_times_add(const struct rps_view *view, json_t *stat)
{
    json_t *times = json_object();

    for (uint16_t op = 1; op < RPS_OPS_COUNTED; op++) {
        json_int_t count = 0;
        json_t *buckets = buckets_of(view, op, &count);

        if (count > 0) {
            json_object_set_new(times, rps_opcode_str(op),
                    json_pack("{s:I, s:I, s:O}", "count", count, "ns",
                            (json_int_t)RPS_LOOPS_SUM(view, times[op].ns),
                            "buckets", buckets));
        }
        json_decref(buckets);
    }
    json_object_set_new(stat, "times", times);
    json_object_set_new(stat, "received_bytes",
            json_integer((json_int_t)RPS_LOOPS_SUM(view, received_bytes)));
    json_object_set_new(stat, "sent_bytes",
            json_integer((json_int_t)RPS_LOOPS_SUM(view, sent_bytes)));
}
