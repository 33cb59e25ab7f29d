/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of the model on the host, as a dump has it. While a tape is on, each
 * operator (operator.h) leaves its operands (operand.h) there, a tile's inputs
 * as they are before it and its outputs behind it; behind the last tile they
 * are joined: one operator with all rows of the batch, the padding left out,
 * the variables' gradients as they are then, in the order in which the first
 * tile had them.
 *
 * It only looks. While none is on, an operator costs one relaxed load more.
 *
 * Threads: one, whoever runs the model.
 */
#ifndef RPS_WORKER_TAPE_H
#define RPS_WORKER_TAPE_H

#include "base/error.h"
#include "client/precision/dump.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct rps_tape;
struct rps_operator;

/** Of operators as they are fused, or of their parts. NULL: no memory. */
struct rps_tape *rps_tape_create(bool fused);
/** It is not on. NULL is fine. */
void rps_tape_destroy(struct rps_tape *tape);

/** It is on from here: a batch of `rows` comes. One at a time. */
void rps_tape_begin(struct rps_tape *tape, size_t rows);

/**
 * It is off: every operator goes to `write`, in order, and is forgotten.
 *
 * Errors: NOMEM: something of it found no memory; nothing is written.
 */
rps_status rps_tape_end(struct rps_tape *tape,
        void (*write)(void *context, const struct rps_dump_operator *operator),
        void *context, struct rps_error *error);

/* For the model. */

/* NULL: none is on. Relaxed: who sets it runs the model, too. */
extern struct rps_tape *_Atomic rps_tape_current;

static inline bool
rps_tape_is_on(void)
{
    return atomic_load_explicit(&rps_tape_current, memory_order_relaxed) !=
           NULL;
}

/** Operators that come are of rows [first, first + rows) of the batch; before
 * the first tile, and behind the last one, they are of all. */
void rps_tape_tile(size_t first, size_t rows);

/** What it reads, before it runs; what it wrote. Without operands: nothing. */
void rps_tape_inputs(const struct rps_operator *operator);
void rps_tape_outputs(const struct rps_operator *operator);

/** Its operands of one row, `row` of the tile. */
void rps_tape_row(const struct rps_operator *operator, size_t row);

#endif /* RPS_WORKER_TAPE_H */
