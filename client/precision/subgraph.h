/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator with its neighbours: who wrote what it read, who read what it
 * wrote, and so on, `depth` operators far; as text for Graphviz, or drawn.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PRECISION_SUBGRAPH_H
#define RPS_PRECISION_SUBGRAPH_H

#include "base/text.h"
#include "client/precision/graph.h"

#define RPS_SUBGRAPH_OPERATORS_MAX 1000u
#define RPS_SUBGRAPH_EDGES_MAX     16000u

/** Edges of the same two operators: edges[first .. first + count - 1]. */
struct rps_subgraph_pair {
    uint32_t from, to; /* in `operators`; from < to */
    uint32_t first, count;
};

struct rps_subgraph {
    const struct rps_graph *graph; /* borrowed */
    uint32_t centre;               /* in `operators` */
    uint32_t *operators;           /* of the dump, in order of execution */
    uint32_t count;
    struct rps_graph_edge *edges; /* of the dump's operators, by from, to */
    uint32_t edge_count;
    struct rps_subgraph_pair *pairs;
    uint32_t pair_count;
};

/** centre: in the dump. Owns: rps_subgraph_finish() releases it, whatever the
 * status. Errors: LIMIT says how many there are, NOMEM. */
rps_status rps_subgraph_take(const struct rps_graph *graph, uint32_t centre,
        uint32_t depth, struct rps_subgraph *subgraph_out,
        struct rps_error *error);
void rps_subgraph_finish(struct rps_subgraph *subgraph);

/** A pair's tensors, a line each: "y -> x [128, 64]". NULL: no memory. */
char *rps_subgraph_words(const struct rps_subgraph *subgraph,
        const struct rps_subgraph_pair *pair);

/** Add a digraph. */
void rps_subgraph_dot(
        const struct rps_subgraph *subgraph, struct rps_text *text);

/** Add an SVG of its own: layer under layer, writers above their readers, light
 * or dark as its reader's system. Errors: LIMIT, NOMEM. */
rps_status rps_subgraph_svg(const struct rps_subgraph *subgraph,
        struct rps_text *text, struct rps_error *error);

#endif /* RPS_PRECISION_SUBGRAPH_H */
