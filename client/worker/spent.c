/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/spent.h"

#include "client/worker/operator.h"

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
            .sent_bytes = (double)spent->sent_bytes / (double)spent->steps,
            .received_bytes =
                    (double)spent->received_bytes / (double)spent->steps,
    };
}

static bool
is_communication(enum rps_spent_stage stage)
{
    switch (stage) {
    case RPS_SPENT_LOOKUP:
    case RPS_SPENT_LOOKUP_WAIT:
    case RPS_SPENT_ALLREDUCE:
    case RPS_SPENT_PUSH:
    case RPS_SPENT_PUSH_WAIT:
    case RPS_SPENT_STEP_END:
        return true;
    default:
        return false;
    }
}

/* Bytes since the stage before ended; 0 in the first one of a profile. */
static uint64_t
moved_since(struct rps_spent *spent)
{
    const uint64_t now =
            spent->moved != NULL ? spent->moved(spent->moved_context) : 0;
    const uint64_t bytes = spent->is_profiled ? now - spent->moved_before : 0;

    spent->moved_before = now;
    spent->is_profiled = true;
    return bytes;
}

void
rps_spent_profile(struct rps_spent *spent, uint64_t now)
{
    const bool communicates = is_communication(spent->stage);
    const uint64_t bytes = moved_since(spent) + spent->reduced;

    spent->reduced = 0;
    rps_profile_add(&(struct rps_profile_span){
            .class = communicates ? RPS_PROFILE_COMMUNICATION
                                  : RPS_PROFILE_SCHEDULING,
            .type = names[spent->stage].json,
            .track = RPS_OPERATOR_TRACK,
            .start_ns = spent->since,
            .end_ns = now,
            .bytes = communicates ? bytes : 0,
    });
}
