/* SPDX-License-Identifier: Apache-2.0 */
/* What dumps have of an MLP: each layer as the device's operators are, fused
 * or in parts. */
#include "client/worker/mlp.h"

#include <stdio.h>

/* A layer's tensors, as all its operators have them. */
struct operands {
    struct rps_operand x, weight, bias, y, dy, dx, dweight, dbias;
};

static struct operands
operands_of(
        const struct rps_mlp *mlp, uint32_t l, const struct rps_mlp_ends *ends)
{
    const struct rps_mlp_layer *layer = &mlp->layers[l];
    const bool is_last = l + 1 == mlp->layer_count;
    struct operands all = {
            .x = l > 0 ? rps_operand_rows("x", layer[-1].output, layer->in)
                       : ends->x,
            .bias = rps_model_values("bias", layer->bias),
            .y = rps_operand_rows("y", layer->output, layer->out),
            .dy = rps_operand_rows("dy", layer->gradient, layer->out),
            .dx = rps_operand_rows(
                    "dx", l > 0 ? layer[-1].gradient : ends->dx, layer->in),
            .dbias = rps_model_gradients("dbias", layer->bias),
    };

    if (layer->in > 0) {
        all.weight = rps_model_values("weight", layer->weight);
        all.dweight = rps_model_gradients("dweight", layer->weight);
    }
    if (is_last) {
        all.y.home = ends->y;
        all.dy.home = ends->dy;
    }
    if (l == 0) {
        all.dx.home = ends->dx_home;
    }
    return all;
}

/* Of a whole layer, and of its parts. */
static const char *
attributes_of(const struct rps_mlp_layer *layer)
{
    return layer->relu ? RPS_OPERANDS_LAYER("relu")
                       : RPS_OPERANDS_LAYER("none");
}

#define PART RPS_OPERANDS_LAYER("none")
#define RELU RPS_OPERANDS_LAYER("relu")
#define ADDING \
    RPS_OPERANDS_HOW(", \"activation\": \"none\", \"accumulate\": true")

static struct rps_operand
called(struct rps_operand operand, const char *label)
{
    operand.label = label;
    return operand;
}

static struct rps_operands *
part_of(struct rps_model *model, struct rps_operator *operator,
        const char * type, const char *part, const char *attributes)
{
    rps_operator_init(operator, type, part);
    return rps_operands_of(
            &model->operands, operator, RPS_OPERANDS_PART, attributes);
}

static void
describe_forward(struct rps_mlp_layer *layer, struct rps_model *model,
        const char *part, const struct operands *all)
{
    struct rps_mlp_parts *parts = &layer->parts;
    struct rps_operands *whole = rps_operands_of(&model->operands,
            &layer->forward, RPS_OPERANDS_FUSED, attributes_of(layer));
    struct rps_operands *one = part_of(model, &parts->bias, "bias", part, PART);
    const struct rps_operand z = called(all->y, "x");

    rps_operands_input(one, &all->bias);
    rps_operands_output(one, &all->y);
    if (layer->in > 0) {
        rps_operands_input(whole, &all->x);
        rps_operands_input(whole, &all->weight);
        one = part_of(model, &parts->product, "linear", part, ADDING);
        rps_operands_input(one, &all->x);
        rps_operands_input(one, &all->weight);
        rps_operands_input(one, &all->y); /* it is added to */
        rps_operands_output(one, &all->y);
    }
    if (layer->relu) {
        one = part_of(model, &parts->relu, "relu", part, RELU);
        rps_operands_input(one, &z);
        rps_operands_output(one, &all->y);
    }
    rps_operands_input(whole, &all->bias);
    rps_operands_output(whole, &all->y);
}

/* Operators of which some other is fused, in the order of their outputs. */
static void
describe_backward(struct rps_mlp_layer *layer, struct rps_model *model,
        const char *part, const struct operands *all)
{
    struct rps_mlp_parts *parts = &layer->parts;
    struct rps_operands *whole = rps_operands_of(&model->operands,
            &layer->backward, RPS_OPERANDS_FUSED, attributes_of(layer));
    struct rps_operands *one = NULL;
    const struct rps_operand kept = called(all->y, "kept");
    const struct rps_operand dz = called(all->dy, "dx");

    rps_operands_input(whole, &all->dy);
    if (layer->relu) {
        rps_operands_input(whole, &kept);
        one = part_of(
                model, &parts->relu_backward, "relu_backward", part, RELU);
        rps_operands_input(one, &all->dy);
        rps_operands_input(one, &kept);
        rps_operands_output(one, &dz);
    }
    one = part_of(model, &parts->dbias, "linear_dbias", part, PART);
    rps_operands_input(one, &all->dy);
    rps_operands_output(one, &all->dbias);
    rps_operands_output(whole, &all->dbias);
    if (layer->in == 0) {
        return;
    }
    one = part_of(model, &parts->dweight, "linear_dweight", part, PART);
    rps_operands_input(one, &all->dy);
    rps_operands_input(one, &all->x);
    rps_operands_output(one, &all->dweight);
    rps_operands_input(whole, &all->x);
    rps_operands_output(whole, &all->dweight);
    if (all->dx.at != NULL) {
        one = part_of(model, &parts->dx, "linear_dx", part, PART);
        rps_operands_input(one, &all->dy);
        rps_operands_input(one, &all->weight);
        rps_operands_output(one, &all->dx);
        rps_operands_input(whole, &all->weight);
        rps_operands_output(whole, &all->dx);
    }
}

/* As the device's (ops_linear_back.c). */
static const char *
held_backward(const struct rps_mlp_layer *layer, bool has_dx)
{
    static const char *const held[2][3] = {
            {"dbias", "dbias + dweight", "dbias + dweight + dx"},
            {"relu_backward + dbias", "relu_backward + dbias + dweight",
                    "relu_backward + dbias + dweight + dx"},
    };

    return held[layer->relu][layer->in == 0 ? 0 : has_dx ? 2 : 1];
}

void
rps_mlp_describe(struct rps_mlp *mlp, struct rps_model *model,
        const char *prefix, const struct rps_mlp_ends *ends)
{
    for (uint32_t l = 0; l < mlp->layer_count; l++) {
        struct rps_mlp_layer *layer = &mlp->layers[l];
        const struct operands all = operands_of(mlp, l, ends);
        char part[RPS_VARIABLE_NAME_BYTES];

        (void)snprintf(part, sizeof(part), "%s.%u", prefix, 2 * l);
        layer->backward.holds = held_backward(layer, all.dx.at != NULL);
        describe_forward(layer, model, part, &all);
        describe_backward(layer, model, part, &all);
    }
}
