/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/dumping.h"

#include "base/json.h"
#include "base/text.h"
#include "client/worker/device.h"
#include "client/worker/tape.h"

#include <recps/npu.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND_BYTES_MAX 65536u

/* Of a sparse table, in the step in hand. */
struct own_rows {
    uint64_t *keys; /* [count], distinct */
    float *rows;    /* [count][dim]; where they are nowhere else */
    size_t count;
    size_t capacity;
    float *pooled_gradients; /* as they were before they are spread */
    size_t pooled_capacity;
};

struct rps_dumping {
    struct rps_run *run;   /* borrowed */
    struct rps_dump *dump; /* of the writer */
    struct rps_tape *tape; /* NULL: a device computes the model */
    uint64_t newest;       /* step that was dumped; a run that goes back does
                            * not dump it again */
    bool expected;         /* the host's: how much it will be */
    bool told;             /* the same */
    bool told_failure;     /* that it ended early */
    bool failed;           /* no memory for what a push has */
    struct own_rows tables[RPS_MODEL_TABLES_MAX];
    /* of gradients whose scale is taken out: variables, then tables */
    struct rps_dump_token
            *tokens[RPS_MODEL_VARIABLES_MAX + RPS_MODEL_TABLES_MAX];
};

/* --- beginning ------------------------------------------------------------ */

/* A word of it need not be UTF-8. */
static bool
add_word(json_t *words, const char *word)
{
    json_t *text = json_string(word);

    return json_array_append_new(
                   words, text != NULL ? text : json_string("?")) == 0;
}

/* ["recps-train", "--data", "x"]: what is to be typed to do it again. The
 * kernel has it with NULs between, and says of its file that it is empty. */
static json_t *
command(void)
{
    char bytes[COMMAND_BYTES_MAX];
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t length = file != NULL ? fread(bytes, 1, sizeof(bytes) - 1, file) : 0;
    json_t *words = json_array();
    bool good = words != NULL;

    bytes[length] = '\0';
    for (size_t at = 0; good && at < length; at += strlen(&bytes[at]) + 1) {
        good = add_word(words, &bytes[at]);
    }
    if (file != NULL) {
        fclose(file);
    }
    return words;
}

/* What a reader of it wants to know of the run. NULL: no memory. */
static char *
describe_run(const struct rps_settings *settings)
{
    const struct rps_options *options = settings->options;
    uint64_t loop_size = 0;

    if (settings->device.npu && rps_npu_loop_size(&loop_size) != RPS_OK) {
        loop_size = 0; /* the first launch says so */
    }
    return rps_json_text(json_pack("{s:s, s:s, s:b, s:s, s:s, s:I, s:I, s:I, "
                                   "s:I, s:I, s:o, s:o, s:o, s:s}",
            "device", options->device, "fusion", options->fusion,
            "deterministic", options->deterministic, "precision_mode",
            options->precision_mode, "implmode", options->implmode, "seed",
            (json_int_t)options->seed, "loop_size", (json_int_t)loop_size,
            "rank", (json_int_t)settings->rank, "ps_count",
            (json_int_t)options->cluster.ps_count, "batch_size",
            (json_int_t)options->batch_size, "options",
            rps_options_changed_json(options, RPS_SCOPE_TRAIN), "environment",
            rps_options_variables_json(options, RPS_SCOPE_TRAIN), "command",
            command(), "version", RPS_VERSION));
}

static rps_status
open_writer(struct rps_dumping *dumping, const struct rps_settings *settings,
        struct rps_error *error)
{
    char *run = describe_run(settings);
    const struct rps_dump_options options = {
            .path = settings->dump.path,
            .rotate = settings->options->rotate,
            .steps = settings->dump.steps,
            .index_is_step = rps_option_given(settings->options, "dump_step"),
            .device = settings->device.id,
            .model = settings->options->model,
            .bytes_max = settings->options->dump_limit,
            .run = run,
    };
    rps_status status =
            run != NULL ? rps_dump_begin(&dumping->dump, &options, error)
                        : rps_fail(error, RPS_E_NOMEM, "no memory for a dump");

    free(run);
    return status;
}

rps_status
rps_dumping_begin(struct rps_run *run)
{
    const struct rps_settings *settings = run->settings;
    struct rps_dumping *dumping;
    rps_status status;

    if (!settings->dump.on) {
        return RPS_OK;
    }
    dumping = calloc(1, sizeof(*dumping));
    if (dumping == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory for a dump");
    }
    run->dumping = dumping;
    dumping->run = run;
    if (run->device == NULL) {
        dumping->tape = rps_tape_create(settings->dump.fusion);
        if (dumping->tape == NULL) {
            return rps_fail(&run->error, RPS_E_NOMEM, "no memory for a dump");
        }
    }
    status = open_writer(dumping, settings, &run->error);
    return status == RPS_OK && run->device != NULL
                   ? rps_device_watch(run->device, dumping->dump, &run->error)
                   : status;
}

/* --- what is asked of it -------------------------------------------------- */

/* Of those from the next step of the loop on. */
static uint64_t
steps_to_come(const struct rps_loop *loop)
{
    const struct rps_dump_steps *steps = &loop->run->settings->dump.steps;

    return rps_dump_steps_count(steps, loop->last_step) -
           rps_dump_steps_count(steps, loop->step);
}

static bool
is_on(const struct rps_loop *loop)
{
    return loop->run->dumping != NULL &&
           rps_dump_is_on(loop->run->dumping->dump);
}

/* What host and device both have of a step. */
static void
count_tables(const struct rps_run *run, const struct rps_turn *turn,
        uint64_t *operations, uint64_t *bytes)
{
    const struct rps_model *model = run->model;
    const bool scales = rps_loss_scale_is_on(&run->settings->loss_scale);
    const uint64_t times = scales ? 4 : 2; /* values, pushed, before, after */

    for (uint32_t v = 0; v < model->variable_count; v++) {
        *operations += scales ? 3 : 2;
        *bytes += times * model->variables[v].elements * sizeof(float);
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_bags *bags = &turn->bags[t];
        const uint64_t row = model->tables[t].dim * sizeof(float);

        *operations += scales ? 4 : 3;
        *bytes += scales ? 2 * bags->bag_count * row : 0;
        *bytes += turn->slots[t].count * (sizeof(uint64_t) + row);
        *bytes += bags->key_count * (sizeof(uint64_t) + row);
        if (!bags->one_each) { /* pooling_backward */
            *bytes += (bags->bag_count + 1) * sizeof(uint32_t) +
                      (bags->bag_count + bags->key_count) * row;
        }
    }
}

rps_status
rps_dumping_expect(struct rps_loop *loop, const struct rps_turn *turn,
        uint64_t operations, uint64_t bytes)
{
    struct rps_run *run = loop->run;
    struct rps_dumping *dumping = run->dumping;
    const uint64_t steps = steps_to_come(loop);
    struct rps_error cause;
    char text[32];

    if (dumping == NULL || steps == 0) {
        return RPS_OK;
    }
    count_tables(run, turn, &operations, &bytes);
    bytes = rps_dump_bytes(steps, operations, bytes);
    if (rps_dump_expect(dumping->dump, bytes, &cause) != RPS_OK) {
        return rps_fail(&run->error, RPS_E_INVAL, "%s", cause.text);
    }
    if (!dumping->told) {
        rps_run_say(run,
                "dump of %" PRIu64 " step%s (--dump-step %s) to %s: at most "
                "some %s",
                steps, steps == 1 ? "" : "s", run->settings->options->dump_step,
                run->settings->dump.path, rps_format_bytes(bytes, text));
        dumping->told = true;
    }
    return RPS_OK;
}

/* --- the step's own ------------------------------------------------------- */

static uint64_t
place_of(const struct rps_run *run, const void *at)
{
    return run->device != NULL ? rps_device_place(run->device, at)
                               : (uint64_t)(uintptr_t)at;
}

static struct rps_dump_tensor
tensor_of(const struct rps_run *run, const char *label,
        enum rps_dump_dtype dtype, const void *at, uint64_t rows,
        uint64_t width)
{
    return (struct rps_dump_tensor){
            .label = label,
            .dtype = dtype,
            .ndim = width > 0 ? 2 : 1,
            .shape = {rows, width},
            .strides = {width > 0 ? width : 1, 1},
            .bytes = at,
            .place = place_of(run, at),
    };
}

/* [rows][bags][dim], that was at `at`. */
static struct rps_dump_tensor
pooled_tensor(const struct rps_run *run, const struct rps_bags *bags,
        const char *label, const float *values, const float *at)
{
    const uint64_t per_row = bags->table.bags, dim = bags->table.dim;

    return (struct rps_dump_tensor){
            .label = label,
            .dtype = RPS_DUMP_F32,
            .ndim = 3,
            .shape = {bags->bag_count / per_row, per_row, dim},
            .strides = {per_row * dim, dim, 1},
            .bytes = values,
            .place = place_of(run, at),
    };
}

/* One that is done already. */
static void
write_as(struct rps_dumping *dumping, const char *type, const char *name,
        const char *attributes, const struct rps_dump_tensor *inputs,
        uint32_t input_count, const struct rps_dump_tensor *outputs,
        uint32_t output_count)
{
    const struct rps_dump_operator operator= {
            .type = type,
            .name = name,
            .attributes = attributes,
            .inputs = inputs,
            .input_count = input_count,
            .outputs = outputs,
            .output_count = output_count,
    };

    rps_dump_after(dumping->dump, rps_dump_before(dumping->dump, &operator),
            &operator);
}

static void
write_one(struct rps_dumping *dumping, const char *type, const char *name,
        const struct rps_dump_tensor *inputs, uint32_t input_count,
        const struct rps_dump_tensor *outputs, uint32_t output_count)
{
    write_as(dumping, type, name, "{}", inputs, input_count, outputs,
            output_count);
}

static struct rps_dump_tensor
variable_tensor(const struct rps_run *run, const char *label,
        const struct rps_variable *variable, const float *at)
{
    return tensor_of(run, label, RPS_DUMP_F32, at, variable->shape[0],
            variable->ndim == 2 ? variable->shape[1] : 0);
}

static void
write_variables(struct rps_dumping *dumping)
{
    const struct rps_run *run = dumping->run;
    const struct rps_model *model = run->model;

    for (uint32_t v = 0; v < model->variable_count; v++) {
        const struct rps_variable *variable = &model->variables[v];
        const struct rps_dump_tensor values =
                variable_tensor(run, "values", variable, variable->values);

        write_one(dumping, "variables", variable->name, NULL, 0, &values, 1);
    }
}

/* --- lookups -------------------------------------------------------------- */

static bool
reserve(struct own_rows *own, size_t count, size_t dim)
{
    if (count > own->capacity || own->keys == NULL) {
        free(own->keys);
        free(own->rows);
        own->capacity = count + count / 4 + 1;
        own->keys = malloc(own->capacity * sizeof(*own->keys));
        own->rows = malloc(own->capacity * dim * sizeof(*own->rows));
    }
    return own->keys != NULL && own->rows != NULL;
}

/* Its distinct keys, in the order of the slots; moved: those whose rows go to
 * the device. */
static rps_status
take_keys(struct own_rows *own, const struct rps_turn *turn, uint32_t t,
        bool moved, struct rps_error *error)
{
    const struct rps_slots *slots = &turn->slots[t];
    const struct rps_bags *bags = &turn->bags[t];

    own->count = 0;
    if (!reserve(own, slots->count, bags->table.dim)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a dump's rows");
    }
    for (size_t s = 0; s < slots->count; s++) {
        const uint32_t token = slots->first[s];

        if (!moved || turn->held[t].places[token].need == RPS_ROW_FETCH) {
            own->keys[own->count++] = bags->keys[token];
        }
    }
    return RPS_OK;
}

static rps_status
write_lookup(struct rps_dumping *dumping, const struct rps_turn *turn,
        uint32_t t, const struct rps_dumping_rows *rows)
{
    struct rps_run *run = dumping->run;
    struct own_rows *own = &dumping->tables[t];
    const struct rps_model_table *table = &run->model->tables[t];
    struct rps_dump_tensor keys, found;
    rps_status status = take_keys(own, turn, t, rows->moved, &run->error);

    if (status != RPS_OK) {
        return status;
    }
    if (rows->rows == NULL) {
        rps_slots_gather(&turn->slots[t], &turn->bags[t], own->rows);
    }
    keys = tensor_of(run, "keys", RPS_DUMP_U64, own->keys, own->count, 0);
    found = tensor_of(run, "rows", RPS_DUMP_F32,
            rows->rows != NULL ? rows->rows : own->rows, own->count,
            table->dim);
    write_one(dumping, "lookup", table->name, &keys, 1, &found, 1);
    return RPS_OK;
}

/* The batch's own part of a pooling. */
static void
describe_pooling(struct rps_operands *operands, const struct rps_turn *turn,
        uint32_t t, const float *rows)
{
    const struct rps_bags *bags = &turn->bags[t];
    const uint64_t rows_shape[] = {turn->slots[t].count, bags->table.dim};
    const uint64_t slots_shape[] = {bags->key_count};
    const uint64_t starts_shape[] = {bags->bag_count + 1};
    const struct rps_operand all[] = {
            rps_operand_whole("rows", RPS_DUMP_F32, rows, 2, rows_shape),
            rps_operand_whole("slots", RPS_DUMP_I32, turn->slots[t].slots, 1,
                    slots_shape),
            rps_operand_whole(
                    "starts", RPS_DUMP_I32, bags->offsets, 1, starts_shape),
    };

    operands->input_count = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rps_operands_input(operands, &all[i]);
    }
}

/* A table's operators that read rows, or their pooled ones. */
static void
describe_tables(const struct rps_dumping *dumping, const struct rps_turn *turn)
{
    struct rps_model *model = dumping->run->model;

    for (uint32_t t = 0; t < model->table_count; t++) {
        struct rps_operands *all[] = {model->operators.pooling[t].operands,
                model->operators.pooling_alone[t].operands};

        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            if (all[i] != NULL) {
                describe_pooling(all[i], turn, t, dumping->tables[t].rows);
            }
        }
    }
}

/* How much it will be, where the host computes the model. */
static rps_status
expect_host(struct rps_loop *loop, const struct rps_turn *turn)
{
    const struct rps_run *run = loop->run;
    uint64_t operators = 0, bytes = 0;

    describe_tables(run->dumping, turn);
    rps_operands_count(&run->model->operands, run->settings->dump.fusion,
            turn->batch.rows, &operators, &bytes);
    return rps_dumping_expect(loop, turn, operators, bytes);
}

rps_status
rps_dumping_fetched(struct rps_loop *loop, const struct rps_loop_step *step,
        const struct rps_dumping_rows *rows)
{
    struct rps_dumping *dumping = loop->run->dumping;
    rps_status status = RPS_OK;

    if (dumping == NULL || step->number <= dumping->newest) {
        return RPS_OK;
    }
    if (dumping->tape != NULL && !dumping->expected) {
        status = expect_host(loop, step->turn);
        dumping->expected = true;
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_dump_step(dumping->dump, step->number - 1);
    if (!rps_dump_is_on(dumping->dump)) {
        return RPS_OK;
    }
    dumping->newest = step->number;
    write_variables(dumping);
    for (uint32_t t = 0; status == RPS_OK && t < loop->run->model->table_count;
            t++) {
        status = write_lookup(dumping, step->turn, t, &rows[t]);
    }
    return status;
}

/* --- the model on the host ------------------------------------------------ */

static void
write_taped(void *context, const struct rps_dump_operator *operator)
{
    struct rps_dumping *dumping = context;

    rps_dump_after(
            dumping->dump, rps_dump_before(dumping->dump, operator), operator);
}

/* It was done before the model, as the batch's rows came (bags.h). */
static void
tape_pooling(struct rps_dumping *dumping, const struct rps_loop_step *step,
        uint32_t t)
{
    struct rps_model_operators *operators = &dumping->run->model->operators;
    const float *pooled = step->input.pooled[t];
    struct rps_operator *all[] = {&operators->pooling[t],
            &operators->pooling_alone[t], &operators->concat[t]};

    if (operators->concat[t].operands != NULL) {
        operators->concat[t].operands->inputs[0].at = pooled;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i]->operands != NULL) {
            all[i]->operands->outputs[0].at = pooled;
            rps_operator_part_begin(all[i]);
            rps_operator_part_end(all[i]);
        }
    }
}

rps_status
rps_dumping_model_run(struct rps_loop *loop, struct rps_loop_step *step)
{
    struct rps_run *run = loop->run;
    struct rps_dumping *dumping = run->dumping;

    if (!is_on(loop)) {
        rps_model_run(run->model, &step->input, NULL, &step->loss);
        return RPS_OK;
    }
    describe_tables(dumping, step->turn);
    rps_tape_begin(dumping->tape, step->input.rows);
    for (uint32_t t = 0; t < run->model->table_count; t++) {
        tape_pooling(dumping, step, t);
    }
    rps_model_run(run->model, &step->input, NULL, &step->loss);
    return rps_tape_end(dumping->tape, write_taped, dumping, &run->error);
}

/* --- the loss scale ------------------------------------------------------- */

/* In place: the tensor is input and output. */
static void
unscale_one(struct rps_dumping *dumping, const char *of, double factor,
        const struct rps_dump_tensor *gradient, struct rps_dump_token **token,
        bool done)
{
    char name[RPS_NAME_BYTES_MAX + 32], attributes[64];
    struct rps_dump_tensor y = *gradient;
    const struct rps_dump_operator operator= {
            .type = "scale",
            .name = name,
            .attributes = attributes,
            .inputs = gradient,
            .input_count = 1,
            .outputs = &y,
            .output_count = 1,
    };

    y.label = "y";
    (void)snprintf(name, sizeof(name), "%s/scale", of);
    (void)snprintf(
            attributes, sizeof(attributes), "{\"factor\": %.17g}", factor);
    if (done) {
        rps_dump_after(dumping->dump, *token, &operator);
        *token = NULL;
    } else {
        *token = rps_dump_before(dumping->dump, &operator);
    }
}

void
rps_dumping_unscale(
        struct rps_loop *loop, const struct rps_loop_step *step, bool done)
{
    const struct rps_run *run = loop->run;
    const struct rps_model *model = run->model;
    const uint32_t variables = model->variable_count;

    if (!is_on(loop)) {
        return;
    }
    for (uint32_t v = 0; v < variables; v++) {
        const struct rps_variable *variable = &model->variables[v];
        const struct rps_dump_tensor x =
                variable_tensor(run, "x", variable, variable->gradients);

        unscale_one(run->dumping, variable->name, 1.0 / step->factor, &x,
                &run->dumping->tokens[v], done);
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        const float *at = step->input.pooled_gradients[t];
        const struct rps_dump_tensor x =
                pooled_tensor(run, &step->turn->bags[t], "x", at, at);

        unscale_one(run->dumping, model->tables[t].name, 1.0 / step->factor, &x,
                &run->dumping->tokens[variables + t], done);
    }
}

/* --- pushes --------------------------------------------------------------- */

/* The bags' gradients are changed where they are spread: as they were. */
static void
keep_gradients(void *context, uint32_t t, const struct rps_bags *bags,
        const float *pooled_gradients)
{
    struct rps_dumping *dumping = context;
    struct own_rows *own = &dumping->tables[t];
    const size_t floats = bags->bag_count * bags->table.dim;

    if (!rps_dump_is_on(dumping->dump) || bags->one_each) {
        return;
    }
    if (rps_bags_work_reserve(&own->pooled_gradients, &own->pooled_capacity,
                floats) == NULL) {
        dumping->failed = true;
    } else {
        memcpy(own->pooled_gradients, pooled_gradients, floats * sizeof(float));
    }
}

/* A bag's gradient becomes that of each of its tokens. */
static void
write_spread(struct rps_dumping *dumping, uint32_t t,
        const struct rps_bags *bags, const float *pooled_gradients,
        const float *gradients)
{
    const struct rps_run *run = dumping->run;
    const struct rps_dump_tensor inputs[] = {
            tensor_of(run, "starts", RPS_DUMP_I32, bags->offsets,
                    bags->bag_count + 1, 0),
            pooled_tensor(run, bags, "dpooled",
                    dumping->tables[t].pooled_gradients, pooled_gradients),
    };
    const struct rps_dump_tensor output = tensor_of(run, "dtokens",
            RPS_DUMP_F32, gradients, bags->key_count, bags->table.dim);
    char name[RPS_NAME_BYTES_MAX + 32];

    (void)snprintf(name, sizeof(name), "%s/pooling_backward", bags->table.name);
    write_as(dumping, "pooling_backward", name,
            rps_model_pooling_attributes(&bags->table), inputs, 2, &output, 1);
}

static void
write_push(void *context, uint32_t t, const struct rps_bags *bags,
        const float *pooled_gradients, const float *gradients)
{
    struct rps_dumping *dumping = context;
    const struct rps_run *run = dumping->run;
    const struct rps_dump_tensor inputs[] = {
            tensor_of(
                    run, "keys", RPS_DUMP_U64, bags->keys, bags->key_count, 0),
            tensor_of(run, "gradients", RPS_DUMP_F32, gradients,
                    bags->key_count, bags->table.dim),
    };

    if (!rps_dump_is_on(dumping->dump)) {
        return;
    }
    if (!bags->one_each && dumping->tables[t].pooled_gradients != NULL) {
        write_spread(dumping, t, bags, pooled_gradients, gradients);
    }
    write_one(dumping, "push", bags->table.name, inputs, 2, NULL, 0);
}

/* As it happens: the run goes on, and may take hours. */
static void
tell_failure(struct rps_run *run)
{
    struct rps_dumping *dumping = run->dumping;
    struct rps_error error;

    if (dumping != NULL && !dumping->told_failure &&
            rps_dump_failed(dumping->dump, &error) != RPS_OK) {
        rps_run_say(run, "%s; the run goes on without a dump", error.text);
        dumping->told_failure = true;
    }
}

void
rps_dumping_pushed(struct rps_loop *loop, const struct rps_loop_step *step)
{
    struct rps_run *run = loop->run;
    const struct rps_model *model = run->model;

    if (!is_on(loop)) {
        tell_failure(run);
        return;
    }
    /* those of a group do not go to a server */
    for (uint32_t v = 0;
            step->finite && run->group == NULL && v < model->variable_count;
            v++) {
        const struct rps_variable *variable = &model->variables[v];
        const struct rps_dump_tensor gradient = variable_tensor(
                run, "gradients", variable, variable->gradients);

        write_one(run->dumping, "push", variable->name, &gradient, 1, NULL, 0);
    }
    rps_dump_step_end(run->dumping->dump);
    tell_failure(run);
}

void
rps_dumping_joined(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;

    if (run->dumping == NULL) {
        return;
    }
    run->tables.watcher = (struct rps_tables_watcher){
            .before = keep_gradients,
            .after = write_push,
            .context = run->dumping,
    };
    if (steps_to_come(loop) == 0 && loop->step < loop->last_step) {
        rps_run_say(run,
                "dump: nothing: the run does steps %" PRIu64 " to %" PRIu64
                ", counted from 0, and --dump-step=%s has none of them",
                loop->step, loop->last_step - 1,
                run->settings->options->dump_step);
    }
}

/* --- ending --------------------------------------------------------------- */

static void
destroy(struct rps_dumping *dumping)
{
    rps_tape_destroy(dumping->tape);
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        free(dumping->tables[t].keys);
        free(dumping->tables[t].rows);
        free(dumping->tables[t].pooled_gradients);
    }
    free(dumping);
}

rps_status
rps_dumping_end(struct rps_run *run, struct rps_error *error)
{
    struct rps_dumping *dumping = run->dumping;
    struct rps_dump_result result = {.steps = 0};
    char text[32];
    rps_status status;

    if (dumping == NULL) {
        return RPS_OK;
    }
    if (run->device != NULL) {
        rps_device_unwatch(run->device);
    }
    run->tables.watcher = (struct rps_tables_watcher){.context = NULL};
    status = rps_dump_end(dumping->dump, &result, error);
    if (status == RPS_OK && dumping->failed) {
        status = rps_fail(error, RPS_E_NOMEM,
                "no memory for a dump's gradients: it is not whole");
    }
    run->dumping = NULL;
    destroy(dumping);
    if (status == RPS_OK && result.moved_back) {
        rps_run_say(run, "the dump in %s is of an earlier run",
                run->settings->dump.path);
    }
    if (status == RPS_OK && result.steps > 0) {
        rps_run_say(run,
                "dump of %" PRIu64 " step%s: %s (%" PRIu64 " files, %s)",
                result.steps, result.steps == 1 ? "" : "s", result.folder,
                result.files, rps_format_bytes(result.bytes, text));
    }
    return status;
}
