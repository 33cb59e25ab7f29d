/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_rates SCHEDULE BASE STEPS: the rate of every step, a line each. */
#include "base/text.h"
#include "client/worker/schedule.h"

#include <stdio.h>
#include <stdlib.h>

int
main(int argc, char **argv)
{
    struct rps_schedule schedule;
    struct rps_error error = {.text = "SCHEDULE BASE STEPS"};
    uint64_t steps = 0;
    double base = 0.0;

    if (argc != 4 || !rps_parse_double(argv[2], &base) ||
            !rps_parse_u64(argv[3], &steps) ||
            rps_schedule_parse(&schedule, "schedule", argv[1], &error) !=
                    RPS_OK) {
        fprintf(stderr, "schedule_rates: %s\n", error.text);
        return EXIT_FAILURE;
    }
    for (uint64_t done = 0; done < steps; done++) {
        printf("%.17g\n", rps_schedule_rate(&schedule, base, done));
    }
    return EXIT_SUCCESS;
}
