/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

volatile uint64_t fuzz_sink;
