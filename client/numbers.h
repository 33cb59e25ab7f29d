/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client knows of its lane at one server, over all connections:
 *
 *   answered <= given <= answered + RPS_NUMBERS_IN_FLIGHT
 *
 * The server keeps the verdicts of the last 64 numbers, so whatever of
 * answered + 1 … given it has carried out, its verdict is there.
 */
#ifndef RPS_CLIENT_NUMBERS_H
#define RPS_CLIENT_NUMBERS_H

#include <stdint.h>

#define RPS_NUMBERS_IN_FLIGHT 63u
#define RPS_RUNS_MAX          256u

/** `count` of the numbers first … last; all of them but in the oldest run,
 * which takes in the next one when there are too many. */
struct rps_run {
    uint64_t first;
    uint64_t last;
    uint64_t count;
};

struct rps_numbers {
    uint64_t incarnation; /* of the server that they were given at */
    uint64_t given;       /* newest number that was sent */
    uint64_t answered;    /* newest number with a reply */
    /* pushes that were acknowledged, ascending [run_count] */
    struct rps_run runs[RPS_RUNS_MAX];
    uint32_t run_count;
    uint64_t acknowledged; /* pushes since the client was opened */
    uint64_t abandoned;    /* sent ones whose outcome nobody will hear */
};

/** The server acknowledged a push, whoever waits for it. Numbers ascend. */
void rps_numbers_acknowledge(struct rps_numbers *numbers, uint64_t number);

/** Forget what is beyond `last`: how many acknowledged pushes that were. */
uint64_t rps_numbers_cut(struct rps_numbers *numbers, uint64_t last);

#endif /* RPS_CLIENT_NUMBERS_H */
