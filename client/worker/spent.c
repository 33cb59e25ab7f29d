/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/spent.h"

static const struct {
    const char *json, *words;
} names[RPS_SPENT_COUNT] = {
#define RPS_SPENT_NAMES(constant, json, words) {json, words},
        RPS_SPENT_STAGES(RPS_SPENT_NAMES)
#undef RPS_SPENT_NAMES
};

void
rps_spent_tell(const struct rps_spent *spent, struct rps_spent_told *told,
        struct rps_report_stages *out)
{
    uint64_t sum = 0;

    *out = (struct rps_report_stages){0};
    for (int i = 0; i < RPS_SPENT_COUNT; i++) {
        sum += spent->ns[i];
    }
    if (spent->steps == 0 || sum == 0) {
        return;
    }
    for (int i = 0; i < RPS_SPENT_COUNT; i++) {
        told->stages[i] = (struct rps_report_stage){
                .name = names[i].json,
                .words = names[i].words,
                .share = (double)spent->ns[i] / (double)sum,
        };
    }
    told->reader[0] = (struct rps_report_stage){
            "read", "read", (double)spent->reader.read_ns / (double)sum};
    told->reader[1] = (struct rps_report_stage){
            "split", "keys", (double)spent->reader.split_ns / (double)sum};
    *out = (struct rps_report_stages){
            .stages = told->stages,
            .count = RPS_SPENT_COUNT,
            .reader = told->reader,
            .reader_count = spent->reader.read_ns > 0 ? 2 : 0,
            .depth = spent->depth,
            .round_trips = (double)spent->round_trips / (double)spent->steps,
    };
}
