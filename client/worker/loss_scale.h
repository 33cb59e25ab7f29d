/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A factor of the loss, and of every gradient on its way back through the
 * model; taken out again before the push. It is a power of two, so that
 * neither multiplication rounds and no bit of a float32 model depends on it,
 * unless a gradient leaves the range of normal numbers.
 *
 * A gradient that is not finite overflowed: the replica pushes nothing for
 * that step. A dynamic factor is then halved, and doubled after `growth`
 * steps in a row without an overflow. Each replica has its own.
 */
#ifndef RPS_WORKER_LOSS_SCALE_H
#define RPS_WORKER_LOSS_SCALE_H

#include "client/worker/model.h"

#include <stdbool.h>
#include <stdint.h>

#define RPS_LOSS_SCALE_EXPONENT_MAX 127 /* the largest power in a float */
#define RPS_LOSS_SCALE_START        16  /* of a dynamic one: 65536 */

/** Zeroed: none. */
struct rps_loss_scale {
    bool dynamic;
    int exponent;    /* the factor is 2^exponent */
    uint64_t growth; /* steps */
    uint64_t clean;  /* steps since the last overflow or doubling */
    uint64_t skipped;
};

/** Is there anything to scale or to look for? */
static inline bool
rps_loss_scale_is_on(const struct rps_loss_scale *scale)
{
    return scale->dynamic || scale->exponent != 0;
}

/**
 * "1024", "2^127", "dynamic" or "dynamic:1024".
 *
 * Errors: INVAL.
 */
rps_status rps_loss_scale_parse(struct rps_loss_scale *scale, const char *text,
        uint64_t growth, struct rps_error *error);

double rps_loss_scale_factor(const struct rps_loss_scale *scale);

/**
 * Take the factor out of every gradient that the model wrote for `input`.
 * False: one is not finite; what they hold then is of no use.
 */
bool rps_loss_scale_remove(const struct rps_loss_scale *scale,
        struct rps_model *model, const struct rps_model_input *input);

/** A step ended so; false: its push was skipped. */
void rps_loss_scale_step(struct rps_loss_scale *scale, bool finite);

#endif /* RPS_WORKER_LOSS_SCALE_H */
