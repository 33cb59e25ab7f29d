/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a dumped tensor's elements lay: from an address to the element that is
 * there, and back.
 */
#ifndef RPS_PRECISION_GRAPH_PLACE_H
#define RPS_PRECISION_GRAPH_PLACE_H

#include "client/precision/read.h"

/** What has more is not followed: a manifest may say anything. */
#define RPS_PLACE_ELEMENTS_MAX (UINT64_C(1) << 31)

/** A dimension; step: elements in C order from one to the next. */
struct rps_place_dim {
    uint64_t size;   /* > 1 */
    uint64_t stride; /* bytes */
    uint64_t step;
};

/**
 * Dimensions of 1 are left out and those that lie behind each other are one:
 *   address(element) = first + sum of index d * stride d
 *   element = sum of index d * step d
 */
struct rps_place {
    uint64_t first;
    uint64_t end;   /* behind its last byte */
    uint64_t count; /* elements; 0: none, or its place is not known */
    uint64_t size;  /* bytes of an element */
    uint32_t ndim;
    struct rps_place_dim dim[RPS_DUMP_DIMS_MAX];
};

struct rps_place rps_place_of(const struct rps_dumped_tensor *tensor);

/** Where it is known: two of them may share memory. */
bool rps_place_may_meet(const struct rps_place *a, const struct rps_place *b);

/** Of an element below `count`. */
uint64_t rps_place_address(const struct rps_place *place, uint64_t element);

/** Elements from this one on that lie side by side; at least 1. */
uint64_t rps_place_run(const struct rps_place *place, uint64_t element);

/** What is at an address. */
struct rps_place_found {
    bool is_there;
    uint64_t element;
    uint64_t bytes; /* there: to the end of what lies side by side; else none
                     * of it is at the next `bytes` addresses, or ever after
                     * (UINT64_MAX) */
};

/** In a tensor whose elements do not overlap: an output. */
struct rps_place_found rps_place_find(
        const struct rps_place *place, uint64_t address);

#endif /* RPS_PRECISION_GRAPH_PLACE_H */
