/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a dump whose contents a test can tell: dump_sample PATH STEPS [LIMIT].
 * Steps 0, 1 and 2 run; each has three operators, of which the second makes a
 * NaN in step 1.
 */
#include "client/precision/dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN "{\"device\": \"none\", \"seed\": 7}"

static struct rps_dump_tensor
tensor(const char *label, enum rps_dump_dtype dtype, uint64_t rows,
        uint64_t columns, const void *bytes)
{
    return (struct rps_dump_tensor){.label = label,
            .dtype = dtype,
            .ndim = 2,
            .shape = {rows, columns},
            .strides = {columns, 1},
            .bytes = bytes,
            .place = (uint64_t)(uintptr_t)bytes};
}

static void
run(struct rps_dump *dump, const char *type, const char *name,
        const struct rps_dump_tensor *in, const struct rps_dump_tensor *out,
        void (*work)(void))
{
    const struct rps_dump_operator op = {.type = type,
            .name = name,
            .attributes = "{\"factor\": 2.5}",
            .stream = 1,
            .inputs = in,
            .input_count = 1,
            .outputs = out,
            .output_count = 1};
    struct rps_dump_token *token = rps_dump_before(dump, &op);

    work();
    rps_dump_after(dump, token, &op);
}

static uint64_t keys[4] = {1, UINT64_MAX, UINT64_C(1) << 63, 42};
static float numbers[3][4];
static uint16_t halves[3][2] = {
        {0x3f80, 0xc000}, {0x7f80, 0x0001}, {0x8000, 0x4049}};
static float sums[3];
static uint64_t now;

static void
look_up(void)
{
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) {
            numbers[i][j] = (float)(i * 4 + j) + 0.5f * (float)now;
        }
    }
}

static void
spoil(void)
{
    if (now == 1) {
        numbers[2][3] = NAN;
    }
}

static void
add_up(void)
{
    for (int i = 0; i < 3; i++) {
        sums[i] = numbers[i][0] + numbers[i][1];
    }
}

static void
run_step(struct rps_dump *dump)
{
    const struct rps_dump_tensor key = tensor("keys", RPS_DUMP_U64, 4, 1, keys);
    const struct rps_dump_tensor whole =
            tensor("rows", RPS_DUMP_F32, 3, 4, numbers);
    /* columns before rows */
    const struct rps_dump_tensor turned = {.label = "x",
            .dtype = RPS_DUMP_F32,
            .ndim = 2,
            .shape = {4, 3},
            .strides = {1, 4},
            .bytes = numbers};
    const struct rps_dump_tensor half =
            tensor("factor", RPS_DUMP_BF16, 3, 2, halves);
    const struct rps_dump_tensor sum = tensor(NULL, RPS_DUMP_F32, 3, 1, sums);

    run(dump, "lookup", "user", &key, &whole, look_up);
    run(dump, "relu", "top.2/relu", &turned, &whole, spoil);
    run(dump, "linear", "a b\\c", &half, &sum, add_up);
}

int
main(int argc, char **argv)
{
    struct rps_dump_options options = {.path = argc > 1 ? argv[1] : "",
            .index_is_step = true,
            .device = 3,
            .model = "dlrm v1.5",
            .model_id = 6,
            .bytes_max = argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX,
            .run = RUN};
    struct rps_dump_result result;
    struct rps_error error;
    struct rps_dump *dump = NULL;
    rps_status status = rps_dump_steps_parse(
            &options.steps, argc > 2 ? argv[2] : "all", &error);

    if (status == RPS_OK) {
        status = rps_dump_begin(&dump, &options, &error);
    }
    for (now = 0; status == RPS_OK && now < 3; now++) {
        rps_dump_step(dump, now);
        run_step(dump);
    }
    if (status == RPS_OK) {
        status = rps_dump_end(dump, &result, &error);
        (void)printf("%s\n%llu %llu %llu\n", result.folder,
                (unsigned long long)result.steps,
                (unsigned long long)result.files,
                (unsigned long long)result.bytes);
    }
    if (status != RPS_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
