/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/steps.h"

#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>

rps_embedding_table *
steps_table(rps_client *client)
{
    return servers_counter(client, "emb", 2);
}

rps_terms
steps_terms(enum rps_mode mode, uint32_t replicas)
{
    return (rps_terms){.mode = mode,
            .combine = RPS_COMBINE_SUM,
            .replica_count = replicas,
            .step_timeout_ms = 20000};
}

void
steps_push_all(rps_embedding_table *table, uint64_t step, float gradient)
{
    uint64_t keys[STEPS_KEYS];
    float gradients[STEPS_KEYS * 2];
    int i;

    for (i = 0; i < STEPS_KEYS; i++) {
        keys[i] = (uint64_t)i;
        gradients[2 * i] = gradient;
        gradients[2 * i + 1] = (float)i;
    }
    must(rps_push_gradients(table, step, STEPS_KEYS, keys, gradients, NAN));
}

void
steps_expect_all(rps_embedding_table *table, float first, float times)
{
    uint64_t keys[STEPS_KEYS];
    float rows[STEPS_KEYS * 2];
    int i;

    for (i = 0; i < STEPS_KEYS; i++) {
        keys[i] = (uint64_t)i;
    }
    must(rps_embedding_lookup(table, STEPS_KEYS, keys, rows));
    for (i = 0; i < STEPS_KEYS; i++) {
        ck_assert_float_eq(rows[2 * i], first);
        ck_assert_float_eq(rows[2 * i + 1], times * (float)i);
    }
}
