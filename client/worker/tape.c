/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/tape.h"

#include "client/worker/operand.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Homes are no memory that there is: they count from here. */
#define HOMES_AT    ((uint64_t)1 << 56)
#define HOMES_ALIGN ((uint64_t)4096)

/* An operand's rows of the batch, side by side. */
struct joined {
    char *bytes;    /* NULL: it is WHOLE, or not there */
    const void *at; /* the first tile's */
};

struct taped {
    struct rps_operands *operands; /* borrowed */
    struct joined inputs[RPS_OPERANDS_MAX];
    struct joined outputs[RPS_OPERANDS_MAX];
};

struct home {
    const void *of;
    uint64_t place;
};

struct rps_tape {
    bool fused;
    bool failed;          /* no memory */
    size_t rows;          /* of the batch */
    size_t first, length; /* of the tile */
    struct taped **operators;
    size_t count, capacity;
    struct home *homes;
    size_t home_count, home_capacity;
    uint64_t next_place;
};

struct rps_tape *_Atomic rps_tape_current;

struct rps_tape *
rps_tape_create(bool fused)
{
    struct rps_tape *tape = calloc(1, sizeof(*tape));

    if (tape != NULL) {
        tape->fused = fused;
    }
    return tape;
}

static void
forget(struct rps_tape *tape)
{
    for (size_t i = 0; i < tape->count; i++) {
        struct taped *taped = tape->operators[i];

        taped->operands->taped = 0;
        for (uint32_t k = 0; k < RPS_OPERANDS_MAX; k++) {
            free(taped->inputs[k].bytes);
            free(taped->outputs[k].bytes);
        }
        free(taped);
    }
    tape->count = 0;
    tape->home_count = 0;
}

void
rps_tape_destroy(struct rps_tape *tape)
{
    if (tape == NULL) {
        return;
    }
    forget(tape);
    free(tape->operators);
    free(tape->homes);
    free(tape);
}

void
rps_tape_begin(struct rps_tape *tape, size_t rows)
{
    assert(!rps_tape_is_on());
    tape->failed = false;
    tape->rows = tape->length = rows;
    tape->first = 0;
    tape->next_place = HOMES_AT;
    atomic_store_explicit(&rps_tape_current, tape, memory_order_relaxed);
}

void
rps_tape_tile(size_t first, size_t rows)
{
    struct rps_tape *tape =
            atomic_load_explicit(&rps_tape_current, memory_order_relaxed);

    if (tape != NULL) {
        assert(first + rows <= tape->rows);
        tape->first = first;
        tape->length = rows;
    }
}

/* --- taking --------------------------------------------------------------- */

/* One more of `size` bytes behind `count`. */
static bool
grow(void **array, size_t *capacity, size_t count, size_t size)
{
    const size_t wanted = 2 * count + 16;
    void *grown;

    if (count < *capacity) {
        return true;
    }
    grown = realloc(*array, wanted * size);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

/* NULL: this dump does not have it, or there is no memory. */
static struct taped *
taped_of(struct rps_tape *tape, const struct rps_operator *operator)
{
    struct rps_operands *operands = operator->operands;
    struct taped *taped = NULL;

    if (operands == NULL || !rps_operands_has(operands, tape->fused)) {
        return NULL;
    }
    if (operands->taped != 0) {
        return tape->operators[operands->taped - 1];
    }
    if (grow((void **)&tape->operators, &tape->capacity, tape->count,
                sizeof(*tape->operators))) {
        taped = calloc(1, sizeof(*taped));
    }
    if (taped == NULL) {
        tape->failed = true;
        return NULL;
    }
    taped->operands = operands;
    tape->operators[tape->count++] = taped;
    operands->taped = (uint32_t)tape->count;
    return taped;
}

static uint64_t
element_bytes(const struct rps_operand *operand)
{
    return rps_operand_bytes(&(struct rps_operand){.dtype = operand->dtype}, 1);
}

/* `count` of the first dimension, to where they lie side by side. */
static void
copy_packed(char *to, const struct rps_operand *operand, const char *from,
        uint64_t count)
{
    const size_t size = (size_t)element_bytes(operand);
    uint64_t shape[RPS_DUMP_DIMS_MAX] = {1, 1, 1, 1};
    uint64_t strides[RPS_DUMP_DIMS_MAX] = {0, 0, 0, 0};
    const uint32_t added = RPS_DUMP_DIMS_MAX - operand->ndim;

    memcpy(shape + added, operand->shape, operand->ndim * sizeof(*shape));
    memcpy(strides + added, operand->strides, operand->ndim * sizeof(*strides));
    shape[added] = count;
    for (uint64_t i = 0; i < shape[0]; i++) {
        for (uint64_t j = 0; j < shape[1]; j++) {
            for (uint64_t k = 0; k < shape[2]; k++) {
                const char *row = from + (i * strides[0] + j * strides[1] +
                                                 k * strides[2]) *
                                                 size;

                for (uint64_t m = 0; m < shape[3]; m++) {
                    memcpy(to, row + m * strides[3] * size, size);
                    to += size;
                }
            }
        }
    }
}

/* Rows [first, first + rows) of the batch. */
static void
take(struct rps_tape *tape, struct joined *joined,
        const struct rps_operand *operand, size_t first, size_t rows)
{
    const uint64_t row_bytes = rps_operand_bytes(operand, 1);
    const void *at = rps_operand_at(operand);

    if (at == NULL) {
        return;
    }
    if (joined->bytes == NULL) {
        joined->at = at;
        joined->bytes = calloc(tape->rows, (size_t)row_bytes + 1);
        tape->failed |= joined->bytes == NULL;
    }
    if (joined->bytes != NULL) {
        copy_packed(joined->bytes + first * row_bytes, operand, at,
                operand->shape[0] * rows);
    }
}

static void
take_all(struct rps_tape *tape, struct joined *joined,
        const struct rps_operand *operands, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (operands[i].reach == RPS_OPERAND_TILE ||
                operands[i].reach == RPS_OPERAND_BATCH) {
            take(tape, &joined[i], &operands[i], tape->first, tape->length);
        }
    }
}

void
rps_tape_inputs(const struct rps_operator *operator)
{
    struct rps_tape *tape =
            atomic_load_explicit(&rps_tape_current, memory_order_relaxed);
    struct taped *taped = taped_of(tape, operator);

    if (taped != NULL) {
        take_all(tape, taped->inputs, taped->operands->inputs,
                taped->operands->input_count);
    }
}

void
rps_tape_outputs(const struct rps_operator *operator)
{
    struct rps_tape *tape =
            atomic_load_explicit(&rps_tape_current, memory_order_relaxed);
    struct taped *taped = taped_of(tape, operator);

    if (taped != NULL) {
        take_all(tape, taped->outputs, taped->operands->outputs,
                taped->operands->output_count);
    }
}

static void
take_row(struct rps_tape *tape, struct joined *joined,
        const struct rps_operand *operands, uint32_t count, size_t row)
{
    for (uint32_t i = 0; i < count; i++) {
        if (operands[i].reach == RPS_OPERAND_ROW) {
            take(tape, &joined[i], &operands[i], tape->first + row, 1);
        }
    }
}

void
rps_tape_row(const struct rps_operator *operator, size_t row)
{
    struct rps_tape *tape =
            atomic_load_explicit(&rps_tape_current, memory_order_relaxed);
    struct taped *taped = taped_of(tape, operator);

    if (taped != NULL && row < tape->length) { /* not of the padding */
        take_row(tape, taped->inputs, taped->operands->inputs,
                taped->operands->input_count, row);
        take_row(tape, taped->outputs, taped->operands->outputs,
                taped->operands->output_count, row);
    }
}

/* --- writing -------------------------------------------------------------- */

/* Of a tensor of so many bytes; the first to ask says it. */
static uint64_t
home_of(struct rps_tape *tape, const void *of, uint64_t bytes)
{
    struct home *home;

    for (size_t i = 0; i < tape->home_count; i++) {
        if (tape->homes[i].of == of) {
            return tape->homes[i].place;
        }
    }
    if (!grow((void **)&tape->homes, &tape->home_capacity, tape->home_count,
                sizeof(*tape->homes))) {
        tape->failed = true;
        return 0;
    }
    home = &tape->homes[tape->home_count++];
    *home = (struct home){.of = of, .place = tape->next_place};
    tape->next_place += (bytes / HOMES_ALIGN + 2) * HOMES_ALIGN;
    return home->place;
}

/* Where it lies as a part of the batch's tensors. */
static uint64_t
place_of(struct rps_tape *tape, const struct rps_operand *operand,
        const struct joined *joined, const struct rps_dump_tensor *tensor)
{
    const struct rps_operand_home *home = &operand->home;
    const uint64_t size = element_bytes(operand);
    const uint64_t rows = tensor->shape[0];

    if (home->of != NULL) {
        return home_of(tape, home->of, rows * home->strides[0] * size) +
               home->first * size;
    }
    if (operand->reach == RPS_OPERAND_WHOLE) {
        return (uint64_t)(uintptr_t)tensor->bytes;
    }
    return operand->reach == RPS_OPERAND_BATCH
                   ? (uint64_t)(uintptr_t)joined->at
                   : home_of(tape, joined->at,
                             rows * tensor->strides[0] * size);
}

static struct rps_dump_tensor
tensor_of(struct rps_tape *tape, const struct rps_operand *operand,
        const struct joined *joined)
{
    struct rps_dump_tensor tensor = {
            .label = operand->label,
            .dtype = operand->dtype,
            .ndim = operand->ndim,
            .bytes = joined->bytes,
    };

    memcpy(tensor.shape, operand->shape, sizeof(tensor.shape));
    if (operand->reach == RPS_OPERAND_WHOLE) {
        tensor.bytes = rps_operand_at(operand);
        memcpy(tensor.strides, operand->strides, sizeof(tensor.strides));
    } else {
        tensor.shape[0] *= tape->rows;
        rps_operand_pack(tensor.ndim, tensor.shape, tensor.strides);
    }
    if (operand->home.of != NULL) {
        tensor.place_strides = operand->home.strides;
    }
    tensor.place = place_of(tape, operand, joined, &tensor);
    return tensor;
}

/* Those that are there. */
static uint32_t
tensors_of(struct rps_tape *tape, const struct rps_operand *operands,
        const struct joined *joined, uint32_t count,
        struct rps_dump_tensor *tensors)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (operands[i].reach == RPS_OPERAND_WHOLE
                        ? rps_operand_at(&operands[i]) != NULL
                        : joined[i].bytes != NULL) {
            tensors[n++] = tensor_of(tape, &operands[i], &joined[i]);
        }
    }
    return n;
}

static void
write_one(struct rps_tape *tape, const struct taped *taped,
        void (*write)(void *context, const struct rps_dump_operator *operator),
        void *context)
{
    const struct rps_operands *operands = taped->operands;
    struct rps_dump_tensor inputs[RPS_OPERANDS_MAX];
    struct rps_dump_tensor outputs[RPS_OPERANDS_MAX];
    const struct rps_dump_operator operator= {
            .type = operands->operator->type,
            .name = operands->operator->name,
            .holds = operands->when == RPS_OPERANDS_PART
                             ? NULL
                             : operands->operator->holds,
            .attributes = operands->attributes,
            .inputs = inputs,
            .input_count = tensors_of(tape, operands->inputs, taped->inputs,
                    operands->input_count, inputs),
            .outputs = outputs,
            .output_count = tensors_of(tape, operands->outputs, taped->outputs,
                    operands->output_count, outputs),
    };

    write(context, &operator);
}

rps_status
rps_tape_end(struct rps_tape *tape,
        void (*write)(void *context, const struct rps_dump_operator *operator),
        void *context, struct rps_error *error)
{
    atomic_store_explicit(&rps_tape_current, NULL, memory_order_relaxed);
    for (size_t i = 0; !tape->failed && i < tape->count; i++) {
        write_one(tape, tape->operators[i], write, context);
    }
    forget(tape);
    return tape->failed ? rps_fail(error, RPS_E_NOMEM,
                                  "no memory for a dump's tensors: give a "
                                  "smaller --batch-size, or no --dump")
                        : RPS_OK;
}
