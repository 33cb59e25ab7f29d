/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the edges. For each input the outputs of earlier operators are asked,
 * the newest first, which of its elements they wrote last: those that a newer
 * one wrote are marked, and asked no more.
 */
#include "client/precision/graph.h"

#include "base/checksum.h"
#include "base/hash.h"
#include "client/precision/graph_place.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u

/* An output of an operator. */
struct writer {
    uint32_t from, output;
    struct rps_place place;
    uint64_t digest; /* of shape and numbers; 0: not known */
    bool digested;
};

struct maker {
    const struct rps_dumped *dumped;
    struct writer *writers; /* in order of execution */
    uint32_t count;
    uint32_t *first; /* [operators + 1]: of which the writers are */
    struct rps_graph *graph;
    uint32_t capacity; /* edges */
};

/* Elements of an input that an output was found for. */
struct marks {
    uint64_t *words;
    uint64_t count; /* elements */
    uint64_t marked;
};

/* --- marks ------------------------------------------------------------------
 */

static bool
marks_init(struct marks *marks, uint64_t count)
{
    *marks = (struct marks){.count = count};
    if (count / WORD_BITS >= SIZE_MAX / sizeof(uint64_t) - 1) {
        return false;
    }
    marks->words = calloc(count / WORD_BITS + 1, sizeof(uint64_t));
    return marks->words != NULL;
}

/* The next one that is not marked, from `element` on; or count. */
static uint64_t
marks_next(const struct marks *marks, uint64_t element)
{
    while (element < marks->count) {
        const uint64_t rest =
                ~marks->words[element / WORD_BITS] >> element % WORD_BITS;

        if (rest != 0) {
            return element + (uint64_t)__builtin_ctzll(rest);
        }
        element += WORD_BITS - element % WORD_BITS;
    }
    return marks->count;
}

static void
marks_add(struct marks *marks, uint64_t first, uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++) {
        const uint64_t bit = UINT64_C(1) << i % WORD_BITS;

        marks->marked += (marks->words[i / WORD_BITS] & bit) == 0 ? 1 : 0;
        marks->words[i / WORD_BITS] |= bit;
    }
}

static uint64_t
least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Mark what the writer wrote of an input; did it write any of it? */
static bool
mark_written(struct marks *marks, const struct rps_place *input,
        const struct rps_place *writer)
{
    bool any = false;
    uint64_t element = marks_next(marks, 0);

    while (element < marks->count) {
        const uint64_t run = rps_place_run(input, element);
        const struct rps_place_found found =
                rps_place_find(writer, rps_place_address(input, element));
        const uint64_t n =
                found.bytes == UINT64_MAX
                        ? run
                        : least(run, 1 + (found.bytes - 1) / input->size);

        if (found.is_there) {
            marks_add(marks, element, n);
            any = true;
        }
        element = marks_next(marks, element + n);
    }
    return any;
}

/* --- contents ---------------------------------------------------------------
 */

/* Of shape and numbers; 0: it cannot be read, or has none. */
static uint64_t
digest_of(const struct rps_dumped_tensor *tensor)
{
    struct rps_dumped_values values = {0};
    uint64_t digest = 0;

    if (tensor->file == NULL ||
            rps_dumped_load(tensor, &values, NULL) != RPS_OK) {
        return 0;
    }
    if (values.count > 0) {
        digest = rps_checksum(values.numbers, values.count * sizeof(double));
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            digest = rps_mix64(digest ^ tensor->shape[d]);
        }
        digest = digest != 0 ? digest : 1;
    }
    rps_dumped_values_free(&values);
    return digest;
}

static uint64_t
writer_digest(const struct maker *maker, struct writer *writer)
{
    if (!writer->digested) {
        writer->digest = digest_of(&maker->dumped->operators[writer->from]
                                            .outputs[writer->output]);
        writer->digested = true;
    }
    return writer->digest;
}

static bool
same_shape(const struct rps_dumped_tensor *a, const struct rps_dumped_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

/* --- edges ------------------------------------------------------------------
 */

static bool
add_edge(struct maker *maker, const struct writer *writer, uint32_t to,
        uint32_t input)
{
    struct rps_graph *graph = maker->graph;

    if (graph->edge_count == maker->capacity) {
        const uint32_t capacity =
                maker->capacity > 0 ? maker->capacity * 2 : 64;
        struct rps_graph_edge *edges =
                realloc(graph->edges, capacity * sizeof(edges[0]));

        if (edges == NULL) {
            return false;
        }
        graph->edges = edges;
        maker->capacity = capacity;
    }
    graph->edges[graph->edge_count++] = (struct rps_graph_edge){
            .from = writer->from,
            .output = writer->output,
            .to = to,
            .input = input,
    };
    return true;
}

static bool
edges_by_place(struct maker *maker, uint32_t to, uint32_t input,
        const struct rps_place *place)
{
    struct marks marks = {0};
    bool good = true;

    for (uint32_t w = maker->first[to]; good && w-- > 0;) {
        const struct writer *writer = &maker->writers[w];

        if (!rps_place_may_meet(place, &writer->place)) {
            continue;
        }
        if (marks.words == NULL && !marks_init(&marks, place->count)) {
            return false;
        }
        if (mark_written(&marks, place, &writer->place)) {
            good = add_edge(maker, writer, to, input);
        }
        if (marks.marked == marks.count) {
            break;
        }
    }
    free(marks.words);
    return good;
}

/* Only outputs whose own place is not known, either. */
static bool
edges_by_contents(struct maker *maker, uint32_t to, uint32_t input,
        const struct rps_dumped_tensor *tensor)
{
    uint64_t digest = 0;

    for (uint32_t w = maker->first[to]; w-- > 0;) {
        struct writer *writer = &maker->writers[w];
        const struct rps_dumped_tensor *output =
                &maker->dumped->operators[writer->from].outputs[writer->output];

        if (output->place != 0 || !same_shape(output, tensor)) {
            continue;
        }
        digest = digest != 0 ? digest : digest_of(tensor);
        if (digest == 0) {
            return true;
        }
        if (writer_digest(maker, writer) == digest) {
            return add_edge(maker, writer, to, input);
        }
    }
    return true;
}

static bool
edges_of_input(struct maker *maker, uint32_t to, uint32_t input)
{
    const struct rps_dumped_tensor *tensor =
            &maker->dumped->operators[to].inputs[input];
    const struct rps_place place = rps_place_of(tensor);

    if (place.count > 0) {
        return edges_by_place(maker, to, input, &place);
    }
    return tensor->place != 0 || edges_by_contents(maker, to, input, tensor);
}

/* --- making it --------------------------------------------------------------
 */

static bool
find_writers(struct maker *maker)
{
    const struct rps_dumped *dumped = maker->dumped;
    size_t count = 0;

    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        count += dumped->operators[i].output_count;
    }
    maker->writers = calloc(count + 1, sizeof(maker->writers[0]));
    maker->first = calloc((size_t)dumped->operator_count + 1, sizeof(uint32_t));
    if (maker->writers == NULL || maker->first == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        maker->first[i] = maker->count;
        for (uint32_t o = 0; o < op->output_count; o++) {
            maker->writers[maker->count++] = (struct writer){
                    .from = i,
                    .output = o,
                    .place = rps_place_of(&op->outputs[o]),
            };
        }
    }
    maker->first[dumped->operator_count] = maker->count;
    return true;
}

static bool
find_edges(struct maker *maker)
{
    for (uint32_t to = 0; to < maker->dumped->operator_count; to++) {
        for (uint32_t i = 0; i < maker->dumped->operators[to].input_count;
                i++) {
            if (!edges_of_input(maker, to, i)) {
                return false;
            }
        }
    }
    return true;
}

rps_status
rps_graph_make(const struct rps_dumped *dumped, struct rps_graph **graph_out,
        struct rps_error *error)
{
    struct maker maker = {.dumped = dumped};
    bool good = false;

    *graph_out = NULL;
    maker.graph = calloc(1, sizeof(*maker.graph));
    if (maker.graph != NULL) {
        maker.graph->dumped = dumped;
        good = find_writers(&maker) && find_edges(&maker);
    }
    free(maker.writers);
    free(maker.first);
    if (!good) {
        rps_graph_free(maker.graph);
        return rps_fail(error, RPS_E_NOMEM,
                "%s: no memory for who wrote what of %u operators",
                dumped->folder, dumped->operator_count);
    }
    *graph_out = maker.graph;
    return RPS_OK;
}

void
rps_graph_free(struct rps_graph *graph)
{
    if (graph != NULL) {
        free(graph->edges);
        free(graph);
    }
}

/* --- asking it --------------------------------------------------------------
 */

/* The first edge of an operator's input, or of what comes behind it. */
static uint32_t
find_edge(const struct rps_graph *graph, uint32_t to, uint32_t input)
{
    uint32_t low = 0, high = graph->edge_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct rps_graph_edge *edge = &graph->edges[middle];

        if (edge->to < to || (edge->to == to && edge->input < input)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* How many elements of an input `bytes` reach over, beginning with the first
 * one: a part of one counts. */
static uint64_t
reach(const struct rps_place *input, uint64_t bytes)
{
    return bytes == UINT64_MAX ? UINT64_MAX : 1 + (bytes - 1) / input->size;
}

static struct rps_graph_written
written_by_place(const struct rps_graph *graph, uint32_t to, uint32_t input,
        uint64_t element, const struct rps_place *place)
{
    const uint64_t address = rps_place_address(place, element);
    struct rps_graph_written written = {.run = rps_place_run(place, element)};

    for (uint32_t e = find_edge(graph, to, input); e < graph->edge_count; e++) {
        const struct rps_graph_edge *edge = &graph->edges[e];
        struct rps_place output;
        struct rps_place_found found;

        if (edge->to != to || edge->input != input) {
            break;
        }
        output = rps_place_of(
                &graph->dumped->operators[edge->from].outputs[edge->output]);
        found = rps_place_find(&output, address);
        /* what this one did not write is for older ones, as far as that goes */
        written.run = least(written.run, reach(place, found.bytes));
        if (found.is_there) {
            written.by_operator = true;
            written.from = edge->from;
            written.output = edge->output;
            written.element = found.element;
            break;
        }
    }
    return written;
}

struct rps_graph_written
rps_graph_written(const struct rps_graph *graph, uint32_t to, uint32_t input,
        uint64_t element)
{
    const struct rps_dumped_tensor *tensor =
            &graph->dumped->operators[to].inputs[input];
    const struct rps_place place = rps_place_of(tensor);
    const uint32_t e = find_edge(graph, to, input);
    struct rps_graph_written written = {.run = 1};

    if (place.count > 0) {
        return written_by_place(graph, to, input, element, &place);
    }
    /* the contents of the whole tensor are the same */
    if (e < graph->edge_count && graph->edges[e].to == to &&
            graph->edges[e].input == input) {
        written = (struct rps_graph_written){.by_operator = true,
                .from = graph->edges[e].from,
                .output = graph->edges[e].output,
                .element = element,
                .run = 1};
    }
    return written;
}

bool
rps_graph_writer(const struct rps_graph *graph, uint32_t to, uint32_t input,
        uint64_t element, uint32_t *from_out, uint32_t *output_out,
        uint64_t *element_out)
{
    const struct rps_graph_written written =
            rps_graph_written(graph, to, input, element);

    if (written.by_operator) {
        *from_out = written.from;
        *output_out = written.output;
        *element_out = written.element;
    }
    return written.by_operator;
}
