/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps-train with one planted fault, which the precision tools have to find.
 * Linked with --wrap around what a step goes through; RECPS_TEST_FAULT says
 * the fault, "KIND NAME STEP [OTHER]", steps from 0, "*" each:
 *
 *   sign OP STEP        OP's first output with the other sign; OP:I: output I
 *   bf16 OP STEP        rounded to bf16
 *   scale OP STEP       times 1024
 *   nan OP STEP         its first element is not a number
 *   smash OP STEP MORE  when OP has run, the first element of what MORE wrote
 *                       is not a number: memory that OP has no business with
 *   lost TABLE STEP     the table's gradients are pushed as zeros
 *   stale TABLE STEP    the batch's first row is that of its first lookup
 *   poison TABLE STEP   the batch's first row is not a number
 *
 * OP is an operator's name with its type, as profiles have it:
 * "top.2/linear". Operators are the device's.
 */
#include "base/text.h"
#include "client/npu/operation.h"
#include "client/worker/fetch.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 96

static struct {
    uint32_t output;
    char kind[16];
    char name[WORD_BYTES];
    char step[24];
    char more[WORD_BYTES];
} fault;

/* What the fault is done to: where the host finds it, as it was captured. */
struct target {
    rps_npu_kernel_fn kernel; /* NULL: not given yet */
    rps_npu_tensor output;
    char *bytes;
    uint64_t runs;
};

static struct target target, victim;

__attribute__((constructor)) static void
read_fault(void)
{
    const char *text = getenv("RECPS_TEST_FAULT");
    char *colon;

    if (text != NULL && sscanf(text, "%15s %95s %23s %95s", fault.kind,
                                fault.name, fault.step, fault.more) < 3) {
        fprintf(stderr, "RECPS_TEST_FAULT=%s: KIND NAME STEP [OTHER]\n", text);
        exit(EXIT_FAILURE);
    }
    colon = strchr(fault.name, ':');
    if (colon != NULL) {
        fault.output = (uint32_t)strtoul(colon + 1, NULL, 10);
        *colon = '\0';
    }
}

static bool
is_kind(const char *kind)
{
    return strcmp(fault.kind, kind) == 0;
}

static bool
is_step(uint64_t step)
{
    uint64_t wanted;

    return strcmp(fault.step, "*") == 0 ||
           (rps_parse_u64(fault.step, &wanted) && wanted == step);
}

/* --- operators ------------------------------------------------------------ */

static float
changed(float value)
{
    uint32_t bits;

    if (is_kind("sign")) {
        return -value;
    }
    if (is_kind("scale")) {
        return 1024.0f * value;
    }
    if (is_kind("bf16")) {
        memcpy(&bits, &value, sizeof(bits));
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        memcpy(&value, &bits, sizeof(value));
    }
    return value;
}

static void
spoil_all(const struct target *at, char *bytes, uint32_t dim)
{
    const rps_npu_tensor *output = &at->output;
    float value;

    if (dim == output->ndim) {
        memcpy(&value, bytes, sizeof(value));
        value = changed(value);
        memcpy(bytes, &value, sizeof(value));
        return;
    }
    for (uint64_t i = 0; i < output->shape[dim]; i++) {
        spoil_all(
                at, bytes + i * output->strides[dim] * sizeof(float), dim + 1);
    }
}

static void
spoil_first(const struct target *at)
{
    const float nan = NAN;

    memcpy(at->bytes, &nan, sizeof(nan));
}

static void
run_target(const void *args, void *workspace)
{
    target.kernel(args, workspace);
    if (is_step(target.runs++)) {
        if (is_kind("nan")) {
            spoil_first(&target);
        } else if (is_kind("smash")) {
            spoil_first(&victim);
        } else {
            spoil_all(&target, target.bytes, 0);
        }
    }
}

static void
take(struct target *at, rps_npu_stream *stream,
        const struct rps_npu_operation *operation, uint32_t output)
{
    at->kernel = operation->kernel;
    at->output = operation->outputs[output];
    at->output.storage = NULL; /* the address is enough */
    at->bytes = rps_npu_inside(rps_npu_stream_device(stream),
            rps_npu_tensor_address(&operation->outputs[output]));
}

static bool
is_called(const struct rps_npu_operation *operation, const char *name)
{
    return operation->name != NULL && operation->output_count > 0 &&
           strcmp(operation->name, name) == 0;
}

rps_status __wrap_rps_npu_enqueue(
        rps_npu_stream *stream, const struct rps_npu_operation *operation);
rps_status __real_rps_npu_enqueue(
        rps_npu_stream *stream, const struct rps_npu_operation *operation);

rps_status
__wrap_rps_npu_enqueue(
        rps_npu_stream *stream, const struct rps_npu_operation *operation)
{
    struct rps_npu_operation planted = *operation;

    if (is_called(operation, fault.more)) {
        take(&victim, stream, operation, 0);
    }
    if (is_called(operation, fault.name) &&
            fault.output < operation->output_count) {
        take(&target, stream, operation, fault.output);
        planted.kernel = run_target;
    }
    return __real_rps_npu_enqueue(stream, &planted);
}

/* --- rows ----------------------------------------------------------------- */

/* One key's row, as it was when it was first looked up. */
static struct {
    bool taken;
    uint64_t key;
    float row[4096];
} old;

static void
spoil_row(struct rps_bags *bags, uint64_t step)
{
    const size_t bytes = bags->table.dim * sizeof(float);

    if (bags->key_count == 0) {
        return;
    }
    if (is_kind("poison") && is_step(step)) {
        bags->rows[0] = NAN;
    }
    if (!is_kind("stale") || bytes > sizeof(old.row)) {
        return;
    }
    for (size_t k = 0; k < bags->key_count; k++) {
        float *row = bags->rows + k * bags->table.dim;

        if (!old.taken) {
            old.taken = true;
            old.key = bags->keys[k];
            memcpy(old.row, row, bytes);
        } else if (old.key == bags->keys[k] && is_step(step)) {
            memcpy(row, old.row, bytes);
        }
    }
}

rps_status __wrap_rps_fetch(struct rps_fetch *fetch, struct rps_turn *turn,
        struct rps_error *error);
rps_status __real_rps_fetch(struct rps_fetch *fetch, struct rps_turn *turn,
        struct rps_error *error);

rps_status
__wrap_rps_fetch(
        struct rps_fetch *fetch, struct rps_turn *turn, struct rps_error *error)
{
    const struct rps_model *model = fetch->tables->model;
    rps_status status = __real_rps_fetch(fetch, turn, error);

    for (uint32_t t = 0; status == RPS_OK && t < model->table_count; t++) {
        if (strcmp(model->tables[t].name, fault.name) == 0) {
            spoil_row(&turn->bags[t], turn->step - 1);
        }
    }
    return status;
}

/* --- pushes --------------------------------------------------------------- */

rps_status __wrap_rps_push_start(rps_client *client, const rps_call *call,
        const rps_push *pushes, size_t count, rps_ticket *ticket_out);
rps_status __real_rps_push_start(rps_client *client, const rps_call *call,
        const rps_push *pushes, size_t count, rps_ticket *ticket_out);

/* Lives as long as the process: a push borrows its gradients. */
static void *zeros;

rps_status
__wrap_rps_push_start(rps_client *client, const rps_call *call,
        const rps_push *pushes, size_t count, rps_ticket *ticket_out)
{
    rps_push *changed_pushes = calloc(count, sizeof(*pushes));
    rps_status status;

    if (changed_pushes == NULL) {
        abort();
    }
    memcpy(changed_pushes, pushes, count * sizeof(*pushes));
    for (size_t i = 0; is_kind("lost") && i < count; i++) {
        const rps_table_spec *spec = rps_embedding_table_spec(pushes[i].table);

        if (call != NULL && is_step(call->step - 1) &&
                strcmp(spec->name, fault.name) == 0) {
            free(zeros);
            zeros = calloc(pushes[i].key_count + 1, spec->dim * sizeof(float));
            changed_pushes[i].gradients = zeros;
        }
    }
    status = __real_rps_push_start(
            client, call, changed_pushes, count, ticket_out);
    free(changed_pushes);
    return status;
}
