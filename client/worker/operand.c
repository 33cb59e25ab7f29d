/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/operand.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct rps_operands *
rps_operands_of(struct rps_operands_list *list, struct rps_operator *operator,
        enum rps_operands_when when, const char *attributes)
{
    struct rps_operands *operands = calloc(1, sizeof(*operands));

    if (operands == NULL) {
        list->failed = true;
        return NULL;
    }
    operands->operator= operator;
    operands->when = when;
    operands->attributes = attributes;
    operands->next = list->first;
    list->first = operands;
    operator->operands = operands;
    return operands;
}

void
rps_operands_finish(struct rps_operands_list *list)
{
    while (list->first != NULL) {
        struct rps_operands *operands = list->first;

        list->first = operands->next;
        free(operands);
    }
}

void
rps_operands_input(
        struct rps_operands *operands, const struct rps_operand *operand)
{
    if (operands != NULL) {
        assert(operands->input_count < RPS_OPERANDS_MAX);
        operands->inputs[operands->input_count++] = *operand;
    }
}

void
rps_operands_output(
        struct rps_operands *operands, const struct rps_operand *operand)
{
    if (operands != NULL) {
        assert(operands->output_count < RPS_OPERANDS_MAX);
        operands->outputs[operands->output_count++] = *operand;
    }
}

void
rps_operand_pack(uint32_t ndim, const uint64_t *shape, uint64_t *strides_out)
{
    uint64_t stride = 1;

    for (uint32_t d = ndim; d-- > 0;) {
        strides_out[d] = stride;
        stride *= shape[d];
    }
}

struct rps_operand
rps_operand_whole(const char *label, enum rps_dump_dtype dtype, const void *at,
        uint32_t ndim, const uint64_t *shape)
{
    struct rps_operand operand = {
            .label = label, .at = at, .dtype = dtype, .ndim = ndim};

    assert(ndim <= RPS_DUMP_DIMS_MAX);
    memcpy(operand.shape, shape, ndim * sizeof(*shape));
    rps_operand_pack(ndim, shape, operand.strides);
    return operand;
}

struct rps_operand
rps_operand_rows(const char *label, const float *at, uint64_t width)
{
    const uint64_t shape[] = {1, width};
    struct rps_operand operand =
            rps_operand_whole(label, RPS_DUMP_F32, at, 2, shape);

    operand.reach = RPS_OPERAND_TILE;
    return operand;
}

struct rps_operand
rps_operand_cube(const char *label, const float *at, uint64_t n, uint64_t width)
{
    const uint64_t shape[] = {1, n, width};
    struct rps_operand operand =
            rps_operand_whole(label, RPS_DUMP_F32, at, 3, shape);

    operand.reach = RPS_OPERAND_TILE;
    return operand;
}

static uint64_t
size_of(enum rps_dump_dtype dtype)
{
    switch (dtype) {
    case RPS_DUMP_F64:
    case RPS_DUMP_I64:
    case RPS_DUMP_U64:
        return 8;
    case RPS_DUMP_F32:
    case RPS_DUMP_BF16: /* as files have it */
    case RPS_DUMP_I32:
    case RPS_DUMP_U32:
        break;
    }
    return 4;
}

uint64_t
rps_operand_bytes(const struct rps_operand *operand, uint64_t rows)
{
    uint64_t bytes = size_of(operand->dtype);

    for (uint32_t d = 0; d < operand->ndim; d++) {
        bytes *= operand->shape[d];
    }
    return operand->reach == RPS_OPERAND_WHOLE ? bytes : bytes * rows;
}

static uint64_t
bytes_of(const struct rps_operand *operands, uint32_t count, uint64_t rows)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += rps_operand_bytes(&operands[i], rows);
    }
    return bytes;
}

void
rps_operands_count(const struct rps_operands_list *list, bool fused,
        uint64_t rows, uint64_t *operators, uint64_t *bytes)
{
    for (const struct rps_operands *o = list->first; o != NULL; o = o->next) {
        if (rps_operands_has(o, fused)) {
            *operators += 1;
            *bytes += bytes_of(o->inputs, o->input_count, rows) +
                      bytes_of(o->outputs, o->output_count, rows);
        }
    }
}
