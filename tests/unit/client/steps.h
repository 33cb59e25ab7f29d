/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps whose outcome is known: the same gradients for STEPS_KEYS keys of a
 * table of two columns, sgd with rate 1 on zeros.
 */
#ifndef TESTS_UNIT_CLIENT_STEPS_H
#define TESTS_UNIT_CLIENT_STEPS_H

#include <recps/client.h>

#define STEPS_KEYS 40

rps_embedding_table *steps_table(rps_client *client);

/** A sum over so many replicas. */
rps_terms steps_terms(enum rps_mode mode, uint32_t replicas);

/** Key k's gradient is {gradient, k}. */
void steps_push_all(rps_embedding_table *table, uint64_t step, float gradient);

/** Key k's row is {first, times k}. */
void steps_expect_all(rps_embedding_table *table, float first, float times);

#endif /* TESTS_UNIT_CLIENT_STEPS_H */
