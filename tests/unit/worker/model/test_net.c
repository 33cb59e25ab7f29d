/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models on a device against plain calls: loss, every gradient of every
 * variable and bag, predictions; whatever trades memory for time.
 */
#include "client/worker/net.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS   150u /* two tiles and a short one */
#define TABLES 2u
#define BAGS   3u
#define TOKENS 3u /* of a bag, at most */
#define KEYS   40u

static double
noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)*state / 9.3e18;
}

static const struct rps_model_table dlrm_tables[TABLES] = {
        {.name = "a", .dim = 5, .pooling = RPS_POOLING_MEAN, .bags = BAGS},
        {.name = "b", .dim = 3, .pooling = RPS_POOLING_SQRTN, .bags = 2}};
static const struct rps_model_table demo_tables[TABLES] = {
        {.name = "u", .dim = 6, .pooling = RPS_POOLING_SUM, .bags = 1},
        {.name = "i", .dim = 4, .pooling = RPS_POOLING_MEAN, .bags = 2}};

static struct rps_model *
make_model(int kind, uint32_t dense, bool projects)
{
    struct rps_model_table tables[TABLES] = {dlrm_tables[0], dlrm_tables[1]};
    const struct rps_model_shape dlrm = {.dense = dense,
            .bottom = {.count = 3, .widths = {9, 7, 5}},
            .top = {.count = 4, .widths = {11, 8, 6, 1}},
            .table_count = TABLES,
            .tables = tables};
    const struct rps_model_shape demo = {
            .trunk = {.count = 5, .widths = {16, 12, 10, 9, 8}},
            .table_count = TABLES,
            .tables = demo_tables};
    struct rps_model *model = NULL;
    rps_status status;

    tables[1].dim = projects ? tables[1].dim : tables[0].dim;
    status = kind == RPS_MODEL_DLRM
                     ? rps_dlrm_create(&model, &dlrm, NULL)
                     : rps_little_demo_create(&model, &demo, NULL);

    ck_assert_int_eq(status, RPS_OK);
    rps_model_start_values(model, 5);
    return model;
}

/* A batch in both forms: rows and slots, and pooled as bags.c pools. */
struct batch {
    struct rps_model *model;
    struct rps_model_input input;
    float dense[ROWS * 4], labels[ROWS * 2];
    float rows[TABLES][KEYS * 8];
    int32_t slots[TABLES][ROWS * BAGS * TOKENS];
    int32_t starts[TABLES][ROWS * BAGS + 1];
    float pooled[TABLES][ROWS * BAGS * 8];
    float gradients[TABLES][ROWS * BAGS * 8];
    float probabilities[ROWS * 2];
    double loss;
};

static void
pool(struct batch *batch, uint32_t t)
{
    const struct rps_model_table *table = &batch->model->tables[t];
    const uint32_t dim = table->dim;

    for (uint32_t b = 0; b < ROWS * table->bags; b++) {
        const int32_t first = batch->starts[t][b];
        const int32_t n = batch->starts[t][b + 1] - first;
        float *sum = batch->pooled[t] + b * dim;

        for (int32_t i = first; i < first + n; i++) {
            for (uint32_t k = 0; k < dim; k++) {
                sum[k] +=
                        batch->rows[t][batch->slots[t][i] * (int)dim + (int)k];
            }
        }
        for (uint32_t k = 0; n > 1 && k < dim; k++) {
            sum[k] /= table->pooling == RPS_POOLING_SUM    ? 1.0f
                      : table->pooling == RPS_POOLING_MEAN ? (float)n
                                                           : sqrtf((float)n);
        }
    }
}

static void
fill_table(struct batch *batch, uint32_t t, uint64_t *state)
{
    const struct rps_model_table *table = &batch->model->tables[t];
    int32_t n = 0;

    for (uint32_t i = 0; i < KEYS * table->dim; i++) {
        batch->rows[t][i] = (float)noise(state);
    }
    for (uint32_t b = 0; b < ROWS * table->bags; b++) {
        const int tokens = (int)(fabs(noise(state)) * (TOKENS + 0.99));

        for (int i = 0; i < tokens && i < (int)TOKENS; i++) {
            batch->slots[t][n++] = (int32_t)(fabs(noise(state)) * (KEYS - 1));
        }
        batch->starts[t][b + 1] = n;
    }
    pool(batch, t);
}

/* Also what plain calls make of it. */
static struct batch *
make_batch(int kind, uint32_t dense, bool projects)
{
    struct batch *batch = calloc(1, sizeof(*batch));
    uint64_t state = 77;

    ck_assert_ptr_nonnull(batch);
    batch->model = make_model(kind, dense, projects);
    for (uint32_t i = 0; i < ROWS * dense; i++) {
        batch->dense[i] = (float)(2 * noise(&state));
    }
    for (uint32_t i = 0; i < ROWS * batch->model->labels; i++) {
        batch->labels[i] = noise(&state) > 0.1 ? 1.0f : 0.0f;
    }
    batch->input = (struct rps_model_input){.rows = ROWS,
            .dense = batch->dense,
            .labels = batch->labels,
            .loss_scale = 1.0 / ROWS};
    for (uint32_t t = 0; t < TABLES; t++) {
        fill_table(batch, t, &state);
        batch->input.pooled[t] = batch->pooled[t];
        batch->input.pooled_gradients[t] = batch->gradients[t];
    }
    rps_model_run(
            batch->model, &batch->input, batch->probabilities, &batch->loss);
    return batch;
}

static void
drop_batch(struct batch *batch)
{
    rps_model_destroy(batch->model);
    free(batch);
}

/* --- on the device -------------------------------------------------------- */

static rps_npu *npu;
static rps_npu_stream *stream, *copies;

static void
open_device(void)
{
    ck_assert_msg(rps_npu_open(&npu, 0, NULL) == RPS_OK, "%s", rps_npu_error());
    ck_assert_int_eq(rps_npu_stream_create(npu, "compute", &stream), RPS_OK);
    ck_assert_int_eq(rps_npu_stream_create(npu, "copies", &copies), RPS_OK);
}

static void
close_device(void)
{
    rps_npu_pool_stats stats;

    rps_npu_stream_destroy(copies);
    rps_npu_stream_destroy(stream);
    rps_npu_pool_read_stats(npu, &stats);
    ck_assert_uint_eq(stats.blocks.now, 0); /* every view was released */
    rps_npu_close(npu);
}

static rps_npu_tensor
put(enum rps_npu_dtype dtype, uint32_t ndim, const uint64_t *shape,
        const void *host)
{
    rps_npu_tensor tensor = {0};

    ck_assert_msg(rps_npu_tensor_create(stream, dtype, ndim, shape, &tensor) ==
                          RPS_OK,
            "%s", rps_npu_error());
    if (host != NULL) {
        ck_assert_int_eq(
                rps_npu_tensor_from_host(stream, &tensor, host), RPS_OK);
        ck_assert_int_eq(rps_npu_stream_synchronize(stream), RPS_OK);
    }
    return tensor;
}

/* What the device makes of the batch. */
struct answer {
    double loss;
    float *gradients; /* [variable_floats] */
    float bags[TABLES][ROWS * BAGS * 8];
    float probabilities[ROWS * 2];
};

/* The whole batch on the device. */
struct there {
    rps_npu_tensor dense, labels, numbers, loss;
    rps_npu_tensor rows[TABLES], slots[TABLES], starts[TABLES], bags[TABLES];
};

static struct there
put_batch(const struct batch *batch)
{
    const struct rps_model *model = batch->model;
    const double numbers[] = {1.0 / ROWS, 1.0 / ROWS, 3.0};
    const uint64_t dense[] = {ROWS, model->shape.dense}, one = 1, three = 3;
    const uint64_t labels[] = {ROWS, model->labels};
    struct there there = {
            .dense = put(RPS_NPU_F32, 2, dense,
                    model->shape.dense > 0 ? batch->dense : NULL),
            .labels = put(RPS_NPU_F32, 2, labels, batch->labels),
            .numbers = put(RPS_NPU_F64, 1, &three, numbers),
            .loss = put(RPS_NPU_F64, 1, &one, NULL),
    };

    for (uint32_t t = 0; t < TABLES; t++) {
        const struct rps_model_table *table = &model->tables[t];
        const uint64_t rows[] = {KEYS, table->dim};
        const uint64_t tokens = ROWS * BAGS * TOKENS;
        const uint64_t starts = ROWS * table->bags + 1;
        const uint64_t bags[] = {ROWS, table->bags, table->dim};

        there.rows[t] = put(RPS_NPU_F32, 2, rows, batch->rows[t]);
        there.slots[t] = put(RPS_NPU_I32, 1, &tokens, batch->slots[t]);
        there.starts[t] = put(RPS_NPU_I32, 1, &starts, batch->starts[t]);
        there.bags[t] = put(RPS_NPU_F32, 3, bags, NULL);
    }
    return there;
}

static void
drop_there(struct there *there)
{
    rps_npu_tensor_release(&there->dense);
    rps_npu_tensor_release(&there->labels);
    rps_npu_tensor_release(&there->numbers);
    rps_npu_tensor_release(&there->loss);
    for (uint32_t t = 0; t < TABLES; t++) {
        rps_npu_tensor_release(&there->rows[t]);
        rps_npu_tensor_release(&there->slots[t]);
        rps_npu_tensor_release(&there->starts[t]);
        rps_npu_tensor_release(&there->bags[t]);
    }
}

static rps_npu_tensor
rows_of(const rps_npu_tensor *tensor, uint64_t first, uint64_t rows)
{
    rps_npu_tensor view = {0};

    ck_assert_int_eq(
            rps_npu_tensor_slice(tensor, 0, first, rows, &view), RPS_OK);
    return view;
}

static struct rps_net_part
part_of(const struct batch *batch, const struct there *there, uint64_t first,
        uint64_t rows)
{
    const uint64_t one = 1, two = 2;
    struct rps_net_part part = {
            .first = first,
            .rows = rows,
            .dense = rows_of(&there->dense, first, rows),
            .labels = rows_of(&there->labels, first, rows),
            .scale = rps_net_view(&there->numbers, 0, RPS_NPU_F64, 1, &two),
            .step = rps_net_view(
                    &there->numbers, 2 * sizeof(double), RPS_NPU_F64, 1, &one),
            .loss = rps_npu_tensor_retain(&there->loss),
            .accumulate = first > 0,
    };

    for (uint32_t t = 0; t < TABLES; t++) {
        const uint64_t bags = batch->model->tables[t].bags;

        part.tables[t] = (struct rps_net_bags){
                .rows = rps_npu_tensor_retain(&there->rows[t]),
                .slots = rps_npu_tensor_retain(&there->slots[t]),
                .starts = rows_of(
                        &there->starts[t], first * bags, rows * bags + 1),
                .gradient = rows_of(&there->bags[t], first, rows),
        };
    }
    return part;
}

static void
drop_part(struct rps_net_part *part)
{
    rps_npu_tensor_release(&part->dense);
    rps_npu_tensor_release(&part->labels);
    rps_npu_tensor_release(&part->scale);
    rps_npu_tensor_release(&part->step);
    rps_npu_tensor_release(&part->loss);
    for (uint32_t t = 0; t < TABLES; t++) {
        rps_npu_tensor_release(&part->tables[t].rows);
        rps_npu_tensor_release(&part->tables[t].slots);
        rps_npu_tensor_release(&part->tables[t].starts);
        rps_npu_tensor_release(&part->tables[t].gradient);
    }
}

static void
train_parts(struct rps_net *net, const struct batch *batch,
        const struct there *there, uint64_t part_rows)
{
    for (uint64_t first = 0; first < ROWS; first += part_rows) {
        const uint64_t left = ROWS - first;
        struct rps_net_part part = part_of(
                batch, there, first, left < part_rows ? left : part_rows);

        ck_assert_msg(
                rps_net_train(net, &part) == RPS_OK, "%s", rps_npu_error());
        drop_part(&part);
    }
}

static void
take_answer(struct rps_net *net, struct there *there, struct answer *answer)
{
    ck_assert_int_eq(
            rps_npu_tensor_to_host(stream, &net->gradients, answer->gradients),
            RPS_OK);
    ck_assert_int_eq(
            rps_npu_tensor_to_host(stream, &there->loss, &answer->loss),
            RPS_OK);
    for (uint32_t t = 0; t < TABLES; t++) {
        ck_assert_int_eq(rps_npu_tensor_to_host(
                                 stream, &there->bags[t], answer->bags[t]),
                RPS_OK);
    }
    ck_assert_msg(rps_npu_stream_synchronize(stream) == RPS_OK, "%s",
            rps_npu_error());
}

static void
predict(struct rps_net *net, const struct batch *batch,
        const struct there *there, struct answer *answer)
{
    const uint64_t shape[] = {ROWS, batch->model->labels};
    struct rps_net_part part = part_of(batch, there, 0, ROWS);
    rps_npu_tensor probabilities = put(RPS_NPU_F32, 2, shape, NULL);

    ck_assert_msg(rps_net_predict(net, &part, &probabilities) == RPS_OK, "%s",
            rps_npu_error());
    ck_assert_int_eq(rps_npu_tensor_to_host(
                             stream, &probabilities, answer->probabilities),
            RPS_OK);
    ck_assert_int_eq(rps_npu_stream_synchronize(stream), RPS_OK);
    rps_npu_tensor_release(&probabilities);
    drop_part(&part);
}

static struct answer *
ask(const struct batch *batch, const struct rps_net_options *options,
        uint64_t part_rows)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    struct rps_net net;
    struct there there;

    ck_assert_ptr_nonnull(answer);
    answer->gradients = calloc(batch->model->variable_floats, sizeof(float));
    open_device();
    ck_assert_msg(rps_net_init(&net, batch->model, stream, copies, options,
                          true) == RPS_OK,
            "%s", rps_npu_error());
    ck_assert_int_eq(
            rps_npu_tensor_from_host(stream, &net.values, batch->model->values),
            RPS_OK);
    there = put_batch(batch);
    train_parts(&net, batch, &there, part_rows);
    take_answer(&net, &there, answer);
    predict(&net, batch, &there, answer);
    drop_there(&there);
    rps_net_finish(&net);
    close_device();
    return answer;
}

static void
drop_answer(struct answer *answer)
{
    free(answer->gradients);
    free(answer);
}

/* --- the same ------------------------------------------------------------- */

static void
check_floats(const float *a, const float *b, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        const double scale = fmax(1.0, fabs((double)b[i]));

        ck_assert_msg(fabs((double)a[i] - (double)b[i]) <= tolerance * scale,
                "%zu: %.9g, not %.9g", i, (double)a[i], (double)b[i]);
    }
}

static void
check(const struct answer *answer, const struct batch *batch, double tolerance)
{
    const struct rps_model *model = batch->model;

    ck_assert_double_le(fabs(answer->loss - batch->loss), tolerance);
    check_floats(answer->gradients, model->gradients, model->variable_floats,
            tolerance);
    check_floats(answer->probabilities, batch->probabilities,
            ROWS * model->labels, 1e-6);
    for (uint32_t t = 0; t < TABLES; t++) {
        check_floats(answer->bags[t], batch->gradients[t],
                ROWS * rps_model_pooled_floats(&model->tables[t]), tolerance);
    }
}

static struct rps_net_options
plain_options(bool deterministic)
{
    struct rps_net_options options = {.seed = 9};

    rps_npu_ops_options_init(&options.ops);
    options.ops.deterministic = deterministic;
    return options;
}

static const struct {
    int kind;
    uint32_t dense;
} kinds[] = {
        {RPS_MODEL_DLRM, 4}, {RPS_MODEL_DLRM, 0}, {RPS_MODEL_LITTLE_DEMO, 0}};

#define KINDS (int)(sizeof(kinds) / sizeof(kinds[0]))

START_TEST(a_device_computes_what_plain_calls_do)
{
    const struct rps_net_options options = plain_options(false);
    struct batch *batch = make_batch(kinds[_i].kind, kinds[_i].dense, true);
    struct answer *answer = ask(batch, &options, ROWS);

    check(answer, batch, 1e-6);
    drop_answer(answer);
    drop_batch(batch);
}
END_TEST

/* But of projections, whose products have as many rows as there are bags. */
START_TEST(a_deterministic_device_has_their_bits)
{
    const struct rps_net_options options = plain_options(true);
    struct batch *batch = make_batch(kinds[_i].kind, kinds[_i].dense, false);
    struct answer *answer = ask(batch, &options, ROWS);

    check(answer, batch, 0.0);
    drop_answer(answer);
    drop_batch(batch);
}
END_TEST

START_TEST(a_batch_in_parts_has_the_same_sums)
{
    const struct rps_net_options options = plain_options(false);
    struct batch *batch = make_batch(kinds[_i].kind, kinds[_i].dense, true);
    struct answer *answer = ask(batch, &options, 31);

    check(answer, batch, 1e-6);
    drop_answer(answer);
    drop_batch(batch);
}
END_TEST

/* fusion off, recompute, offload; all of these with dropout, too */
static void
check_ways(const struct batch *batch, double dropout)
{
    struct rps_net_options options = plain_options(true);
    struct answer *plain;

    options.dropout = dropout;
    plain = ask(batch, &options, 64);
    for (int way = 0; way < 3; way++) {
        struct answer *answer;

        options.ops.fusion = way != 0;
        options.recompute = way == 1;
        options.offload = way == 2;
        answer = ask(batch, &options, 64);
        ck_assert(answer->loss == plain->loss);
        ck_assert_mem_eq(answer->gradients, plain->gradients,
                batch->model->variable_floats * sizeof(float));
        ck_assert_mem_eq(answer->bags, plain->bags, sizeof(plain->bags));
        ck_assert_mem_eq(answer->probabilities, plain->probabilities,
                sizeof(plain->probabilities));
        drop_answer(answer);
    }
    if (dropout > 0.0) { /* it does something, in training alone */
        ck_assert(plain->loss != batch->loss);
        check_floats(plain->probabilities, batch->probabilities,
                ROWS * batch->model->labels, 1e-6);
    }
    drop_answer(plain);
}

START_TEST(memory_for_time_changes_no_bit)
{
    struct batch *batch = make_batch(kinds[_i].kind, kinds[_i].dense, true);

    check_ways(batch, 0.0);
    check_ways(batch, 0.3);
    drop_batch(batch);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("net");
    TCase *tests = tcase_create("net");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_device_computes_what_plain_calls_do, 0, KINDS);
    tcase_add_loop_test(tests, a_deterministic_device_has_their_bits, 0, KINDS);
    tcase_add_loop_test(tests, a_batch_in_parts_has_the_same_sums, 0, KINDS);
    tcase_add_loop_test(tests, memory_for_time_changes_no_bit, 0, KINDS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
