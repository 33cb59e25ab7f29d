/* SPDX-License-Identifier: Apache-2.0 */
/* Owns which operators and edges are in it, and their words. */
#include "client/precision/subgraph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rps_status
no_memory(struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "no memory to draw operators");
}

/* --- which --------------------------------------------------------------- */

/* How far operators are: up, of what it was made of; down, what was made of
 * it. UINT32_MAX: further. */
struct distances {
    uint32_t *up, *down;
};

static void
pass(uint32_t *distance, uint32_t from, uint32_t to, uint32_t depth)
{
    if (distance[from] < depth && distance[from] + 1 < distance[to]) {
        distance[to] = distance[from] + 1;
    }
}

/* An edge goes forward in time and edges are by `to`: downwards once through
 * is enough. Upwards writers come after all of their readers, backwards. */
static void
measure(const struct rps_graph *graph, uint32_t centre, uint32_t depth,
        struct distances *distances)
{
    for (uint32_t i = 0; i < graph->dumped->operator_count; i++) {
        distances->up[i] = distances->down[i] = i == centre ? 0 : UINT32_MAX;
    }
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        pass(distances->down, graph->edges[i].from, graph->edges[i].to, depth);
    }
    for (uint32_t i = graph->edge_count; i-- > 0;) {
        pass(distances->up, graph->edges[i].to, graph->edges[i].from, depth);
    }
}

/* *number_out[operator]: where it stands among those that are in; UINT32_MAX:
 * it is not. */
static rps_status
choose(struct rps_subgraph *subgraph, uint32_t centre, uint32_t depth,
        uint32_t *numbers, struct rps_error *error)
{
    const uint32_t count = subgraph->graph->dumped->operator_count;
    struct distances distances = {
            .up = calloc((size_t)count + 1, sizeof(uint32_t)),
            .down = calloc((size_t)count + 1, sizeof(uint32_t))};
    rps_status status = RPS_OK;

    subgraph->operators = calloc((size_t)count + 1, sizeof(uint32_t));
    if (distances.up == NULL || distances.down == NULL ||
            subgraph->operators == NULL) {
        status = no_memory(error);
    } else {
        measure(subgraph->graph, centre, depth, &distances);
    }
    for (uint32_t i = 0; status == RPS_OK && i < count; i++) {
        numbers[i] = UINT32_MAX;
        if (distances.up[i] != UINT32_MAX || distances.down[i] != UINT32_MAX) {
            subgraph->centre = i == centre ? subgraph->count : subgraph->centre;
            numbers[i] = subgraph->count;
            subgraph->operators[subgraph->count++] = i;
        }
    }
    free(distances.up);
    free(distances.down);
    return status;
}

static int
by_ends(const void *a, const void *b)
{
    const struct rps_graph_edge *x = a, *y = b;
    const uint32_t left[] = {x->from, x->to, x->output, x->input};
    const uint32_t right[] = {y->from, y->to, y->output, y->input};

    for (int i = 0; i < 4; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}

/* The edges of those that are in, sorted, and their pairs. */
static rps_status
collect(struct rps_subgraph *subgraph, const uint32_t *numbers,
        struct rps_error *error)
{
    const struct rps_graph *graph = subgraph->graph;
    const size_t room = (size_t)graph->edge_count + 1;

    subgraph->edges = calloc(room, sizeof(*subgraph->edges));
    subgraph->pairs = calloc(room, sizeof(*subgraph->pairs));
    if (subgraph->edges == NULL || subgraph->pairs == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        const struct rps_graph_edge *edge = &graph->edges[i];

        if (numbers[edge->from] != UINT32_MAX &&
                numbers[edge->to] != UINT32_MAX && edge->from < edge->to) {
            subgraph->edges[subgraph->edge_count++] = *edge;
        }
    }
    qsort(subgraph->edges, subgraph->edge_count, sizeof(*subgraph->edges),
            by_ends);
    for (uint32_t i = 0; i < subgraph->edge_count; i++) {
        const struct rps_graph_edge *edge = &subgraph->edges[i];
        struct rps_subgraph_pair *pair = &subgraph->pairs[subgraph->pair_count];

        if (i == 0 || edge->from != edge[-1].from || edge->to != edge[-1].to) {
            *pair = (struct rps_subgraph_pair){.from = numbers[edge->from],
                    .to = numbers[edge->to],
                    .first = i};
            subgraph->pair_count++;
        }
        subgraph->pairs[subgraph->pair_count - 1].count++;
    }
    return RPS_OK;
}

rps_status
rps_subgraph_take(const struct rps_graph *graph, uint32_t centre,
        uint32_t depth, struct rps_subgraph *subgraph_out,
        struct rps_error *error)
{
    uint32_t *numbers =
            calloc((size_t)graph->dumped->operator_count + 1, sizeof(*numbers));
    rps_status status = numbers != NULL ? RPS_OK : no_memory(error);

    *subgraph_out = (struct rps_subgraph){.graph = graph};
    if (status == RPS_OK) {
        status = choose(subgraph_out, centre, depth, numbers, error);
    }
    if (status == RPS_OK) {
        status = collect(subgraph_out, numbers, error);
    }
    free(numbers);
    if (status == RPS_OK &&
            (subgraph_out->count > RPS_SUBGRAPH_OPERATORS_MAX ||
                    subgraph_out->edge_count > RPS_SUBGRAPH_EDGES_MAX)) {
        status = rps_fail(error, RPS_E_LIMIT,
                "%" PRIu32 " operators with %" PRIu32
                " edges are too many to be drawn (%u and %u are the most): "
                "go less deep",
                subgraph_out->count, subgraph_out->edge_count,
                RPS_SUBGRAPH_OPERATORS_MAX, RPS_SUBGRAPH_EDGES_MAX);
    }
    return status;
}

void
rps_subgraph_finish(struct rps_subgraph *subgraph)
{
    free(subgraph->operators);
    free(subgraph->edges);
    free(subgraph->pairs);
    *subgraph = (struct rps_subgraph){.graph = NULL};
}

/* --- words ---------------------------------------------------------------- */

static void
add_tensor(struct rps_text *text, const char *side,
        const struct rps_dumped_tensor *tensor)
{
    if (tensor->label != NULL) {
        rps_text_add(text, "%s", tensor->label);
    } else {
        rps_text_add(text, "%s %" PRIu32, side, tensor->index);
    }
}

char *
rps_subgraph_words(const struct rps_subgraph *subgraph,
        const struct rps_subgraph_pair *pair)
{
    const struct rps_dumped *dumped = subgraph->graph->dumped;
    struct rps_text text = {.bytes = NULL};

    for (uint32_t i = pair->first; i < pair->first + pair->count; i++) {
        const struct rps_graph_edge *edge = &subgraph->edges[i];
        const struct rps_dumped_tensor *input =
                &dumped->operators[edge->to].inputs[edge->input];

        rps_text_add(&text, "%s", i > pair->first ? "\n" : "");
        add_tensor(&text, "output",
                &dumped->operators[edge->from].outputs[edge->output]);
        rps_text_add(&text, " -> ");
        add_tensor(&text, "input", input);
        rps_text_add(&text, " [");
        for (uint32_t d = 0; d < input->ndim; d++) {
            rps_text_add(
                    &text, "%s%" PRIu64, d > 0 ? ", " : "", input->shape[d]);
        }
        rps_text_add(&text, "]");
    }
    if (text.failed) {
        rps_text_finish(&text);
    }
    return text.bytes;
}

/* Within quotes of Graphviz's. */
static void
add_quoted(struct rps_text *text, const char *from)
{
    for (; *from != '\0'; from++) {
        if (*from == '"' || *from == '\\') {
            rps_text_add(text, "\\%c", *from);
        } else if (*from == '\n') {
            rps_text_add(text, "\\l");
        } else {
            rps_text_add_bytes(text,
                    (unsigned char)*from < ' ' || *from == 0x7f ? "?" : from,
                    1);
        }
    }
}

void
rps_subgraph_dot(const struct rps_subgraph *subgraph, struct rps_text *text)
{
    rps_text_add(text, "digraph operators {\n"
                       "  node [shape=box, style=rounded];\n");
    for (uint32_t i = 0; i < subgraph->count; i++) {
        const struct rps_dumped_operator *op =
                &subgraph->graph->dumped->operators[subgraph->operators[i]];

        rps_text_add(text, "  op%" PRIu32 " [label=\"", subgraph->operators[i]);
        add_quoted(text, op->type);
        rps_text_add(text, "\\n");
        add_quoted(text, op->name);
        rps_text_add(text, "\"%s];\n",
                i == subgraph->centre ? ", penwidth=3, color=red" : "");
    }
    for (uint32_t i = 0; i < subgraph->pair_count; i++) {
        const struct rps_subgraph_pair *pair = &subgraph->pairs[i];
        char *words = rps_subgraph_words(subgraph, pair);

        rps_text_add(text, "  op%" PRIu32 " -> op%" PRIu32 " [label=\"",
                subgraph->operators[pair->from], subgraph->operators[pair->to]);
        add_quoted(text, words != NULL ? words : "");
        rps_text_add(text, "\\l\"];\n");
        text->failed = text->failed || words == NULL;
        free(words);
    }
    rps_text_add(text, "}\n");
}
