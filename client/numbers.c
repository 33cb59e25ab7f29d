/* SPDX-License-Identifier: Apache-2.0 */
#include "client/numbers.h"

#include <assert.h>
#include <string.h>

void
rps_numbers_acknowledge(struct rps_numbers *numbers, uint64_t number)
{
    struct rps_run *runs = numbers->runs;
    struct rps_run *last =
            numbers->run_count > 0 ? &runs[numbers->run_count - 1] : NULL;

    assert(last == NULL || number > last->last);
    numbers->acknowledged++;
    if (last != NULL && number == last->last + 1) {
        last->last = number;
        last->count++;
        return;
    }
    if (numbers->run_count == RPS_RUNS_MAX) {
        runs[1].first = runs[0].first;
        runs[1].count += runs[0].count;
        numbers->run_count--;
        memmove(runs, runs + 1, numbers->run_count * sizeof(*runs));
    }
    runs[numbers->run_count++] =
            (struct rps_run){.first = number, .last = number, .count = 1};
}

uint64_t
rps_numbers_cut(struct rps_numbers *numbers, uint64_t last)
{
    uint64_t lost = 0;

    while (numbers->run_count > 0) {
        struct rps_run *run = &numbers->runs[numbers->run_count - 1];
        uint64_t beyond;

        if (run->last <= last) {
            break;
        }
        if (run->first > last) {
            lost += run->count;
            numbers->run_count--;
            continue;
        }
        beyond = run->last - last;
        beyond = beyond < run->count ? beyond : run->count;
        lost += beyond;
        run->count -= beyond;
        run->last = last;
    }
    return lost;
}
