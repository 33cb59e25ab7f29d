/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/compare_trace.h"

#include "client/precision/compare_impl.h"
#include "client/precision/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool
rps_compare_find_input(const struct rps_dumped *dumped,
        const struct rps_dumped_tensor *tensor, uint32_t *op_out,
        uint32_t *input_out)
{
    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        for (uint32_t k = 0; k < op->input_count; k++) {
            if (&op->inputs[k] == tensor) {
                *op_out = i;
                *input_out = k;
                return true;
            }
        }
    }
    return false;
}

/* The element where both sides are the farthest apart. */
static uint64_t
farthest(const struct rps_compared_tensor *tensor)
{
    struct rps_dumped_values values[2] = {{.count = 0}, {.count = 0}};
    uint64_t at = 0;
    double most = 0.0;

    if (rps_dumped_load(tensor->left, &values[0], NULL) == RPS_OK &&
            rps_dumped_load(tensor->right, &values[1], NULL) == RPS_OK &&
            values[0].count == values[1].count) {
        for (uint64_t i = 0; i < values[0].count; i++) {
            const double apart =
                    fabs(values[0].numbers[i] - values[1].numbers[i]);

            if (apart > most || isnan(apart)) {
                at = i;
                most = isnan(apart) ? (double)INFINITY : apart;
            }
        }
    }
    rps_dumped_values_free(&values[0]);
    rps_dumped_values_free(&values[1]);
    return at;
}

static const struct rps_dumped_operator *
by_place(const struct rps_dumped *dumped,
        const struct rps_dumped_tensor *tensor, uint64_t element)
{
    const struct rps_dumped_operator *found = NULL;
    struct rps_graph *graph = NULL;
    uint32_t op, input, from, output;
    uint64_t there;

    if (rps_compare_find_input(dumped, tensor, &op, &input) &&
            rps_graph_make(dumped, &graph, NULL) == RPS_OK &&
            rps_graph_writer(
                    graph, op, input, element, &from, &output, &there)) {
        found = &dumped->operators[from];
    }
    rps_graph_free(graph);
    return found;
}

static bool
has_contents(
        const struct rps_dumped_tensor *a, const struct rps_dumped_tensor *b)
{
    const struct rps_compare_options exact = {.exact = true};
    struct rps_compared_tensor both = {.left = a, .right = b};

    if (a->dtype != b->dtype || a->ndim != b->ndim || a->ndim == 0 ||
            memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) != 0) {
        return false;
    }
    rps_compare_tensor(&both, false, &exact);
    free(both.problem);
    return both.equal_bytes;
}

/* The last one before it that gave just this. */
static const struct rps_dumped_operator *
by_contents(
        const struct rps_dumped *dumped, const struct rps_dumped_tensor *tensor)
{
    uint32_t op, input;

    if (!rps_compare_find_input(dumped, tensor, &op, &input)) {
        return NULL;
    }
    while (op-- > 0) {
        const struct rps_dumped_operator *earlier = &dumped->operators[op];

        for (uint32_t k = 0; k < earlier->output_count; k++) {
            if (has_contents(&earlier->outputs[k], tensor)) {
                return earlier;
            }
        }
    }
    return NULL;
}

void
rps_compare_trace(const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compared_tensor *tensor,
        struct rps_compare_writer writers[2])
{
    const struct rps_dumped *const dumped[2] = {left, right};
    const struct rps_dumped_tensor *const read[2] = {
            tensor->left, tensor->right};
    uint64_t element;

    writers[0] = (struct rps_compare_writer){.is_left = true};
    writers[1] = (struct rps_compare_writer){.is_left = false};
    if (tensor->left == NULL || tensor->right == NULL) {
        return;
    }
    element = farthest(tensor);
    for (int side = 0; side < 2; side++) {
        /* the graph goes by contents where no place is known */
        writers[side].by_contents = read[side]->place == 0;
        writers[side].op = by_place(dumped[side], read[side], element);
    }
    for (int side = 0;
            side < 2 && writers[0].op == NULL && writers[1].op == NULL;
            side++) {
        writers[side].by_contents = true;
        writers[side].op = by_contents(dumped[side], read[side]);
    }
}
