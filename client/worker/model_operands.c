/* SPDX-License-Identifier: Apache-2.0 */
/* What dumps have of every model: its loss, its tables' pooling, and how its
 * variables and logits are found. */
#include "client/worker/model.h"

#include <string.h>

/* --- operands ------------------------------------------------------------- */

static struct rps_operand
of_variable(const char *label, const struct rps_variable *variable,
        float *const *via)
{
    struct rps_operand operand = rps_operand_whole(
            label, RPS_DUMP_F32, NULL, variable->ndim, variable->shape);

    operand.via = (const float *const *)via;
    return operand;
}

struct rps_operand
rps_model_values(const char *label, const struct rps_variable *variable)
{
    return of_variable(label, variable, &variable->values);
}

struct rps_operand
rps_model_gradients(const char *label, const struct rps_variable *variable)
{
    return of_variable(label, variable, &variable->gradients);
}

/* [rows][labels] in a batch */
static struct rps_operand_home
column_of(const struct rps_model *model, const float *logits, uint32_t first)
{
    return (struct rps_operand_home){
            .of = logits, .first = first, .strides = {model->labels, 1}};
}

struct rps_operand_home
rps_model_logits_home(const struct rps_model *model, uint32_t first)
{
    return column_of(model, model->logits, first);
}

struct rps_operand_home
rps_model_logit_gradients_home(const struct rps_model *model, uint32_t first)
{
    return column_of(model, model->logit_gradients, first);
}

/* [labels][tile] here */
static struct rps_operand
logits_of(const char *label, const struct rps_model *model, const float *at)
{
    struct rps_operand operand = rps_operand_rows(label, at, model->labels);

    operand.strides[0] = 1;
    operand.strides[1] = RPS_MODEL_TILE;
    operand.home = column_of(model, at, 0);
    return operand;
}

/* --- the loss ------------------------------------------------------------- */

/* One of loss and gradient, or both. */
static void
describe_loss(struct rps_model *model, struct rps_operator *operator,
        const char * type, enum rps_operands_when when)
{
    const uint64_t one = 1, two = 2;
    struct rps_operand labels = rps_operand_rows("labels", NULL, model->labels);
    const struct rps_operand logits = logits_of("logits", model, model->logits);
    const struct rps_operand dlogits =
            logits_of("dlogits", model, model->logit_gradients);
    const struct rps_operand scale =
            rps_operand_whole("scale", RPS_DUMP_F64, model->scale, 1, &two);
    const struct rps_operand loss =
            rps_operand_whole("loss", RPS_DUMP_F64, &model->loss, 1, &one);
    struct rps_operands *operands;

    rps_operator_init(operator, type, "loss");
    operands = rps_operands_of(&model->operands, operator, when,
            RPS_OPERANDS_HOW(", \"accumulate\": false"));
    labels.reach = RPS_OPERAND_BATCH;
    labels.via = &model->tile.labels;
    rps_operands_input(operands, &logits);
    rps_operands_input(operands, &labels);
    rps_operands_input(operands, &scale);
    if (operator!= & model->operators.loss_gradient) {
        rps_operands_output(operands, &loss);
    }
    if (operator!= & model->operators.loss_alone) {
        rps_operands_output(operands, &dlogits);
    }
}

void
rps_model_describe_loss(struct rps_model *model)
{
    struct rps_model_operators *operators = &model->operators;

    describe_loss(model, &operators->loss, "bce", RPS_OPERANDS_FUSED);
    operators->loss.holds = "loss + gradient";
    describe_loss(model, &operators->loss_alone, "bce_loss", RPS_OPERANDS_PART);
    describe_loss(model, &operators->loss_gradient, "bce_gradient",
            RPS_OPERANDS_PART);
}

/* --- pooling -------------------------------------------------------------- */

const char *
rps_model_pooling_attributes(const struct rps_model_table *table)
{
    return table->pooling == RPS_POOLING_MEAN
                   ? RPS_OPERANDS_HOW(", \"pooling\": \"mean\"")
           : table->pooling == RPS_POOLING_SQRTN
                   ? RPS_OPERANDS_HOW(", \"pooling\": \"sqrtn\"")
                   : RPS_OPERANDS_HOW(", \"pooling\": \"sum\"");
}

static struct rps_operands *
describe(struct rps_model *model, struct rps_operator *operator,
        const char * type, uint32_t t, enum rps_operands_when when)
{
    rps_operator_init(operator, type, model->tables[t].name);
    return rps_operands_of(&model->operands, operator,
            when,
            operator== & model->operators.concat[t]
                    ? RPS_OPERANDS_PLAIN
                    : rps_model_pooling_attributes(&model->tables[t]));
}

/* What it reads comes with a batch (dumping.c), and where its output is. */
void
rps_model_describe_pooling(struct rps_model *model, uint32_t t,
        const struct rps_operand_home *home)
{
    const struct rps_model_table *table = &model->tables[t];
    struct rps_model_operators *operators = &model->operators;
    struct rps_operand pooled =
            rps_operand_cube("pooled", NULL, table->bags, table->dim);
    struct rps_operands *operands;

    pooled.reach = RPS_OPERAND_BATCH;
    pooled.home = (struct rps_operand_home){.of = table};
    memcpy(pooled.home.strides, pooled.strides, sizeof(pooled.strides));
    if (home->of == NULL) {
        operands = describe(model, &operators->pooling[t], "pooling", t,
                RPS_OPERANDS_ALWAYS);
        rps_operands_output(operands, &pooled);
        return;
    }
    operands = describe(model, &operators->pooling_alone[t], "pooling", t,
            RPS_OPERANDS_PART);
    rps_operands_output(operands, &pooled);
    operands = describe(
            model, &operators->concat[t], "concat", t, RPS_OPERANDS_PART);
    pooled.label = "x";
    rps_operands_input(operands, &pooled);
    pooled.label = "y";
    pooled.home = *home;
    rps_operands_output(operands, &pooled);
    operands = describe(
            model, &operators->pooling[t], "pooling", t, RPS_OPERANDS_FUSED);
    operators->pooling[t].holds = "pooling + concat";
    pooled.label = "pooled";
    rps_operands_output(operands, &pooled);
}
