/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who wrote what an operator read: by the places of a step's tensors. Where
 * places are not known (a foreign dump), by equal contents of an earlier
 * output of the same shape.
 */
#ifndef RPS_PRECISION_GRAPH_H
#define RPS_PRECISION_GRAPH_H

#include "client/precision/read.h"

/** Output `output` of operator `from` is, in whole or in part, input `input`
 * of operator `to`. */
struct rps_graph_edge {
    uint32_t from, output;
    uint32_t to, input;
};

struct rps_graph {
    const struct rps_dumped *dumped; /* borrowed */
    struct rps_graph_edge
            *edges; /* by `to`, then `input`, newest writer first */
    uint32_t edge_count;
};

rps_status rps_graph_make(const struct rps_dumped *dumped,
        struct rps_graph **graph_out, struct rps_error *error);
void rps_graph_free(struct rps_graph *graph);

/** Who wrote element `element` (C order) of an input last before `to` ran:
 * false: nobody in this step (copied from the host). */
bool rps_graph_writer(const struct rps_graph *graph, uint32_t to,
        uint32_t input, uint64_t element, uint32_t *from_out,
        uint32_t *output_out, uint64_t *element_out);

/** The same for elements that lie side by side, from `element` on. */
struct rps_graph_written {
    bool by_operator; /* false: nobody in this step wrote them */
    uint32_t from, output;
    uint64_t element; /* of the output; the run's others follow it */
    uint64_t run;     /* elements, at least 1 */
};
struct rps_graph_written rps_graph_written(const struct rps_graph *graph,
        uint32_t to, uint32_t input, uint64_t element);

/** Where an input is not what its writers' outputs were. NaNs are alike. */
struct rps_graph_break {
    uint64_t elements; /* that differ; 0: none */
    uint64_t first;    /* of the input */
    uint32_t from, output;
    uint64_t element; /* of the output */
    double wrote, read;
};

/** Only what operators wrote is looked at. Errors: those of
 * rps_dumped_load(), of the input or an output. */
rps_status rps_graph_check(const struct rps_graph *graph, uint32_t to,
        uint32_t input, struct rps_graph_break *broken,
        struct rps_error *error);

#endif /* RPS_PRECISION_GRAPH_H */
