/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target is one function. With -Dfuzz=libfuzzer the engine calls it;
 * otherwise replay.c does, with each file of the corpus and with fixed
 * mutations of it, as a plain test.
 */
#ifndef RPS_TESTS_FUZZ_FUZZ_H
#define RPS_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* Results go here, so that no read is optimised away. */
extern volatile uint64_t fuzz_sink;

#endif /* RPS_TESTS_FUZZ_FUZZ_H */
