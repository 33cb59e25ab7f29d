/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that shows in which order it was run. */
#ifndef RPS_TESTS_UNIT_NPU_KERNEL_H
#define RPS_TESTS_UNIT_NPU_KERNEL_H

#include "client/npu/operation.h"
#include "tests/unit/npu/npu.h"

/* A kernel: x = 3 x + add, mod 2^32. Any other order gives another x. */
struct step {
    uint32_t *x; /* inside */
    uint32_t add;
};

static inline void
run_step(const void *args, void *workspace)
{
    const struct step *step = args;

    *step->x = *step->x * 3 + step->add;
}

static inline void
give_step(rps_npu *npu, rps_npu_stream *stream, void *x, uint32_t add)
{
    const struct step step = {.x = rps_npu_inside(npu, x), .add = add};
    const struct rps_npu_operation operation = {
            .type = "step",
            .kernel = run_step,
            .args = &step,
            .args_bytes = sizeof(step),
    };

    ck_assert_ok(rps_npu_enqueue(stream, &operation));
}

static inline uint32_t
read_word(rps_npu_stream *stream, const void *from)
{
    uint32_t word = 0;

    ck_assert_ok(
            rps_npu_copy(stream, &word, from, sizeof(word), RPS_NPU_TO_HOST));
    return word;
}

#endif /* RPS_TESTS_UNIT_NPU_KERNEL_H */
