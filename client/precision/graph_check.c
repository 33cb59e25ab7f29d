/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: an input beside what was written, run by run. */
#include "client/precision/graph.h"

#include <math.h>
#include <stdlib.h>

/* Outputs of an input, loaded once each. */
struct loaded {
    uint32_t from, output;
    struct rps_dumped_values values;
};

struct check {
    const struct rps_graph *graph;
    struct loaded *loaded;
    uint32_t count;
    uint32_t last; /* that was asked for */
};

static rps_status
find_output(struct check *check, const struct rps_graph_written *written,
        const struct rps_dumped_values **values_out, struct rps_error *error)
{
    const struct rps_dumped_operator *from =
            &check->graph->dumped->operators[written->from];
    struct loaded *loaded = NULL;
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < check->count; i++) {
        const uint32_t at = (check->last + i) % check->count;

        if (check->loaded[at].from == written->from &&
                check->loaded[at].output == written->output) {
            check->last = at;
            *values_out = &check->loaded[at].values;
            return RPS_OK;
        }
    }
    loaded = realloc(check->loaded,
            ((size_t)check->count + 1) * sizeof(check->loaded[0]));
    if (loaded == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory",
                check->graph->dumped->folder);
    }
    check->loaded = loaded;
    loaded += check->count;
    *loaded = (struct loaded){.from = written->from, .output = written->output};
    status = rps_dumped_load(
            &from->outputs[written->output], &loaded->values, error);
    if (status == RPS_OK) {
        check->last = check->count++;
        *values_out = &loaded->values;
    }
    return status;
}

static bool
alike(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void
compare_run(const struct rps_dumped_values *input, uint64_t element,
        const struct rps_dumped_values *output,
        const struct rps_graph_written *written, struct rps_graph_break *broken)
{
    for (uint64_t i = 0; i < written->run && element + i < input->count &&
                         written->element + i < output->count;
            i++) {
        const double read = input->numbers[element + i];
        const double wrote = output->numbers[written->element + i];

        if (!alike(read, wrote) && broken->elements++ == 0) {
            broken->first = element + i;
            broken->from = written->from;
            broken->output = written->output;
            broken->element = written->element + i;
            broken->read = read;
            broken->wrote = wrote;
        }
    }
}

static rps_status
walk(struct check *check, uint32_t to, uint32_t input,
        const struct rps_dumped_values *values, struct rps_graph_break *broken,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint64_t element = 0; status == RPS_OK && element < values->count;) {
        const struct rps_graph_written written =
                rps_graph_written(check->graph, to, input, element);
        const struct rps_dumped_values *output = NULL;

        if (written.by_operator) {
            status = find_output(check, &written, &output, error);
        }
        if (output != NULL) {
            compare_run(values, element, output, &written, broken);
        }
        element += written.run;
    }
    return status;
}

rps_status
rps_graph_check(const struct rps_graph *graph, uint32_t to, uint32_t input,
        struct rps_graph_break *broken, struct rps_error *error)
{
    const struct rps_dumped_tensor *tensor =
            &graph->dumped->operators[to].inputs[input];
    struct check check = {.graph = graph};
    struct rps_dumped_values values = {.count = 0};
    rps_status status = RPS_OK;

    *broken = (struct rps_graph_break){.elements = 0};
    if (tensor->place == 0) { /* then its writer is known by equal contents */
        return RPS_OK;
    }
    status = rps_dumped_load(tensor, &values, error);
    if (status == RPS_OK) {
        status = walk(&check, to, input, &values, broken, error);
        rps_dumped_values_free(&values);
    }
    for (uint32_t i = 0; i < check.count; i++) {
        rps_dumped_values_free(&check.loaded[i].values);
    }
    free(check.loaded);
    return status;
}
