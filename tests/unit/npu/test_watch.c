/* SPDX-License-Identifier: Apache-2.0 */
/* What a watcher sees: every operation, with its tensors before and after. */
#include "base/text.h"
#include "tests/unit/npu/ops.h"

#include <recps/npu_watch.h>

#include <pthread.h>
#include <stdatomic.h>

#define SEEN_MAX 64u
#define PLAIN                                       \
    "{\"deterministic\": false, \"mixed\": false, " \
    "\"precise\": false"

/* One operation, as words; and its first input before it, its first output
 * after it. */
struct seen {
    char words[512];
    float input;
    float output;
};

static struct {
    pthread_mutex_t lock;
    struct seen all[SEEN_MAX]; /* lock */
    uint32_t count;            /* lock */
} watched = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
add_tensors(struct rps_text *text, const rps_npu_watched_tensor *tensors,
        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rps_text_add(text, " %s[",
                tensors[i].label == NULL ? "?" : tensors[i].label);
        for (uint32_t d = 0; d < tensors[i].ndim; d++) {
            rps_text_add(
                    text, d == 0 ? "%u" : ",%u", (unsigned)tensors[i].shape[d]);
        }
        rps_text_add(text, "]");
    }
}

static float
first_of(const rps_npu_watched_tensor *tensors, uint32_t count)
{
    float value = 0.0f;

    if (count > 0 && tensors[0].bytes != NULL &&
            tensors[0].dtype == RPS_NPU_F32) {
        memcpy(&value, tensors[0].bytes, sizeof(value));
    }
    return value;
}

/* "relu a/relu: x[3] -> y[3]", and attributes without what all have */
static void
describe(const rps_npu_watched *o, char words[512])
{
    struct rps_text text = {0};
    const char *rest = o->attributes;

    if (strncmp(rest, PLAIN, sizeof(PLAIN) - 1) == 0) {
        rest += sizeof(PLAIN) - 1;
    }
    rps_text_add(&text, "%s %s", o->type, o->name);
    if (o->holds != NULL) {
        rps_text_add(&text, " (%s)", o->holds);
    }
    rps_text_add(&text, ":");
    add_tensors(&text, o->inputs, o->input_count);
    rps_text_add(&text, " ->");
    add_tensors(&text, o->outputs, o->output_count);
    rps_text_add(&text, "%s", rest);
    ck_assert(!text.failed);
    ck_assert_uint_lt(text.length, 512);
    memcpy(words, text.bytes, text.length + 1);
    rps_text_finish(&text);
}

static void *
look_before(void *context, const rps_npu_watched *o)
{
    struct seen *seen;

    ck_assert_ptr_eq(context, &watched);
    pthread_mutex_lock(&watched.lock);
    ck_assert_uint_lt(watched.count, SEEN_MAX);
    seen = &watched.all[watched.count++];
    describe(o, seen->words);
    seen->input = first_of(o->inputs, o->input_count);
    pthread_mutex_unlock(&watched.lock);
    return seen;
}

static void
look_after(void *context, void *token, const rps_npu_watched *o)
{
    struct seen *seen = token;

    ck_assert_ptr_eq(context, &watched);
    seen->output = first_of(o->outputs, o->output_count);
}

static const rps_npu_watcher watcher = {
        .before = look_before, .after = look_after, .context = &watched};

static struct bench bench;

static void
set_up(void)
{
    bench = open_bench();
    watched.count = 0;
    bench.ops.name = "a";
    ck_assert_ok(rps_npu_watch(bench.npu, &watcher));
}

static void
tear_down(void)
{
    close_bench(&bench);
}

static void
expect(const char *const *words, uint32_t count)
{
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    for (uint32_t i = 0; i < count && i < watched.count; i++) {
        ck_assert_str_eq(watched.all[i].words, words[i]);
    }
    ck_assert_uint_eq(watched.count, count);
}

#define EXPECT(...)                                                   \
    do {                                                              \
        static const char *const words_[] = {__VA_ARGS__};            \
        expect(words_, (uint32_t)(sizeof(words_) / sizeof(*words_))); \
    } while (false)

/* --- operators --------------------------------------------------------------
 */

static const float numbers[24] = {1.0f, -2.0f, 3.0f, -4.0f, 5.0f, -6.0f, 7.0f};

static rps_npu_tensor
filled(uint64_t rows, uint64_t columns)
{
    return matrix(&bench, rows, columns, numbers);
}

static void
drop(rps_npu_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        rps_npu_tensor_release(&tensors[i]);
    }
}

START_TEST(elementwise_ones_have_labels_and_numbers)
{
    const double half = 0.5;
    rps_npu_tensor t[] = {filled(2, 3), filled(2, 3), filled(2, 3),
            scalars(&bench, 1, &half)};

    ck_assert_ok(rps_npu_apply(&bench.ops, RPS_NPU_TANH, &t[0], &t[1]));
    ck_assert_ok(rps_npu_apply_backward(
            &bench.ops, RPS_NPU_GELU, &t[0], &t[1], &t[2]));
    ck_assert_ok(rps_npu_add(&bench.ops, &t[0], &t[1], &t[2]));
    ck_assert_ok(rps_npu_scale(&bench.ops, &t[0], 2.5, &t[3], &t[1]));
    ck_assert_ok(rps_npu_scale(&bench.ops, &t[0], 0.1, NULL, &t[1]));
    ck_assert_ok(rps_npu_fill(&bench.ops, INFINITY, &t[1]));
    ck_assert_ok(rps_npu_cast(&bench.ops, &t[0], &t[1]));
    EXPECT("tanh a/tanh: x[2,3] -> y[2,3]}",
            "gelu_backward a/gelu_backward: kept[2,3] dy[2,3] -> dx[2,3]}",
            "add a/add: a[2,3] b[2,3] -> y[2,3]}",
            "scale a/scale: device_factor[1] x[2,3] -> y[2,3], \"factor\": "
            "2.5}",
            "scale a/scale: x[2,3] -> y[2,3], \"factor\": "
            "0.10000000000000001}",
            "fill a/fill: -> y[2,3], \"value\": \"inf\"}",
            "cast a/cast: x[2,3] -> y[2,3]}");
    drop(t, 4);
}
END_TEST

START_TEST(a_join_in_parts_reads_what_it_leaves)
{
    rps_npu_tensor t[7], whole = filled(1, 7);

    for (size_t i = 0; i < 7; i++) {
        t[i] = filled(1, 1);
    }
    ck_assert_ok(rps_npu_concat(&bench.ops, t, 7, &whole));
    ck_assert_ok(rps_npu_split(&bench.ops, &whole, t, 7));
    EXPECT("concat a/concat: x[1,1] x[1,1] x[1,1] x[1,1] x[1,1] y[1,7] -> "
           "y[1,7], \"column\": 0}",
            "concat a/concat: x[1,1] x[1,1] y[1,7] -> y[1,7], \"column\": 5}",
            "split a/split: x[1,7] -> y[1,1] y[1,1] y[1,1] y[1,1] y[1,1], "
            "\"column\": 0}",
            "split a/split: x[1,7] -> y[1,1] y[1,1], \"column\": 5}");
    drop(t, 7);
    drop(&whole, 1);
}
END_TEST

static void
give_layer(rps_npu_tensor t[5], enum rps_npu_activation activation, bool keeps)
{
    const rps_npu_linear linear = {.x = &t[0],
            .weight = &t[1],
            .bias = &t[2],
            .activation = activation,
            .z = keeps ? &t[3] : NULL,
            .y = &t[4]};

    ck_assert_ok(rps_npu_linear_forward(&bench.ops, &linear));
}

START_TEST(layers_are_fused_or_in_parts)
{
    rps_npu_tensor t[] = {filled(2, 3), filled(4, 3),
            vector(&bench, 4, numbers), filled(2, 4), filled(2, 4)};

    give_layer(t, RPS_NPU_ACTIVATION_RELU, false);
    give_layer(t, RPS_NPU_ACTIVATION_GELU, true);
    bench.ops.options.fusion = false;
    give_layer(t, RPS_NPU_ACTIVATION_GELU, true);
    give_layer(t, RPS_NPU_ACTIVATION_NONE, false);
    EXPECT("linear_relu a/linear_relu (linear + bias + relu): x[2,3] "
           "weight[4,3] bias[4] -> y[2,4], \"activation\": \"relu\", "
           "\"accumulate\": false}",
            "linear_gelu a/linear_gelu (linear + bias + gelu): x[2,3] "
            "weight[4,3] bias[4] -> z[2,4] y[2,4], \"activation\": \"gelu\", "
            "\"accumulate\": false}",
            "bias a/bias: bias[4] -> z[2,4], \"activation\": \"none\", "
            "\"accumulate\": false}",
            "linear a/linear: x[2,3] weight[4,3] z[2,4] -> z[2,4], "
            "\"activation\": \"none\", \"accumulate\": true}",
            "gelu a/gelu: x[2,4] -> y[2,4], \"activation\": \"gelu\", "
            "\"accumulate\": false}",
            "bias a/bias: bias[4] -> y[2,4], \"activation\": \"none\", "
            "\"accumulate\": false}",
            "linear a/linear: x[2,3] weight[4,3] y[2,4] -> y[2,4], "
            "\"activation\": \"none\", \"accumulate\": true}");
    drop(t, 5);
}
END_TEST

START_TEST(gradients_that_are_added_to_are_inputs_too)
{
    rps_npu_tensor t[] = {filled(2, 3), filled(4, 3), filled(2, 4),
            filled(2, 4), filled(2, 3), filled(4, 3),
            vector(&bench, 4, numbers)};
    rps_npu_linear_gradient g = {.x = &t[0],
            .weight = &t[1],
            .activation = RPS_NPU_ACTIVATION_RELU,
            .kept = &t[2],
            .dy = &t[3],
            .dx = &t[4],
            .dweight = &t[5],
            .dbias = &t[6],
            .accumulate = true};

    ck_assert_ok(rps_npu_linear_backward(&bench.ops, &g));
    bench.ops.options.fusion = false;
    g.accumulate = false;
    ck_assert_ok(rps_npu_linear_backward(&bench.ops, &g));
    EXPECT("linear_backward a/linear_backward (relu_backward + dbias + dweight "
           "+ dx): dy[2,4] kept[2,4] x[2,3] weight[4,3] dbias[4] dweight[4,3] "
           "-> dbias[4] dweight[4,3] dx[2,3], \"activation\": \"relu\", "
           "\"accumulate\": true}",
            "relu_backward a/relu_backward: dy[2,4] kept[2,4] -> dx[2,4], "
            "\"activation\": \"relu\", \"accumulate\": false}",
            "linear_dbias a/linear_dbias: dy[2,4] -> dbias[4], "
            "\"activation\": \"none\", \"accumulate\": false}",
            "linear_dweight a/linear_dweight: dy[2,4] x[2,3] -> dweight[4,3], "
            "\"activation\": \"none\", \"accumulate\": false}",
            "linear_dx a/linear_dx: dy[2,4] weight[4,3] -> dx[2,3], "
            "\"activation\": \"none\", \"accumulate\": false}");
    drop(t, 7);
}
END_TEST

START_TEST(the_loss_and_dropout_have_their_numbers)
{
    static const double pair[2] = {0.5, 0.25};
    rps_npu_tensor t[] = {filled(2, 1), filled(2, 1),
            vector(&bench, 2, numbers), scalars(&bench, 2, pair),
            scalars(&bench, 1, pair), filled(2, 1)};
    const rps_npu_bce bce = {.logits = &t[0],
            .labels = &t[1],
            .weights = &t[2],
            .scale = &t[3],
            .loss = &t[4],
            .accumulate = true,
            .dlogits = &t[5]};
    const rps_npu_dropout dropout = {.rate = 0.25,
            .seed = UINT64_MAX,
            .site = 7,
            .step = &t[4],
            .first = 640};

    ck_assert_ok(rps_npu_bce_with_logits(&bench.ops, &bce));
    ck_assert_ok(rps_npu_dropout_apply(&bench.ops, &dropout, &t[0], &t[1]));
    EXPECT("bce a/bce (loss + gradient): logits[2,1] labels[2,1] weights[2] "
           "scale[2] loss[1] -> loss[1] dlogits[2,1], \"accumulate\": true}",
            "dropout a/dropout: x[2,1] step[1] -> y[2,1], \"rate\": 0.25, "
            "\"seed\": \"18446744073709551615\", \"site\": 7, \"first\": 640}");
    drop(t, 6);
}
END_TEST

static rps_npu_tensor
whole_numbers(uint64_t n, const int32_t *values)
{
    return make_tensor(&bench, RPS_NPU_I32, 1, &n, values);
}

START_TEST(rows_and_their_dots_have_what_stays)
{
    static const int32_t three[3] = {0, 1, 2};
    static const uint64_t cube[] = {2, 2, 3};
    rps_npu_tensor t[] = {filled(2, 3), whole_numbers(2, three),
            whole_numbers(3, three), filled(2, 3), filled(2, 4),
            make_tensor(&bench, RPS_NPU_F32, 3, cube, numbers),
            make_tensor(&bench, RPS_NPU_F32, 3, cube, numbers),
            vector(&bench, 6, numbers), whole_numbers(2, three)};
    const rps_npu_bags bags = {
            .pooling = RPS_POOLING_MEAN, .slots = &t[1], .starts = &t[2]};

    ck_assert_ok(rps_npu_pool_bags(&bench.ops, &bags, &t[0], &t[3]));
    ck_assert_ok(rps_npu_pool_bags_backward(&bench.ops, &bags, &t[3], &t[0]));
    ck_assert_ok(rps_npu_dots(&bench.ops, &t[5], true, &t[4]));
    ck_assert_ok(rps_npu_dots_backward(&bench.ops, &t[5], true, &t[4], &t[6]));
    ck_assert_ok(rps_npu_scatter_rows(&bench.ops, &t[7], &t[8], &t[1], &t[0]));
    EXPECT("pooling a/pooling: rows[2,3] slots[2] starts[3] -> pooled[2,3], "
           "\"pooling\": \"mean\"}",
            "pooling_backward a/pooling_backward: starts[3] dpooled[2,3] "
            "dtokens[2,3] -> dtokens[2,3], \"pooling\": \"mean\"}",
            "dots a/dots (dots + concat): v[2,2,3] -> y[2,4], \"first\": true}",
            "dots_backward a/dots_backward: v[2,2,3] dy[2,4] -> dv[2,2,3], "
            "\"first\": true}",
            "scatter a/scatter: packed[6] header[2] places[2] y[2,3] -> "
            "y[2,3]}");
    drop(t, 9);
}
END_TEST

START_TEST(optimizers_change_their_inputs)
{
    static const int32_t yes = 1;
    const double number = 1.0;
    rps_npu_tensor t[] = {vector(&bench, 3, numbers),
            vector(&bench, 3, numbers), vector(&bench, 3, numbers),
            vector(&bench, 3, numbers), scalars(&bench, 1, &number),
            scalars(&bench, 1, &number), whole_numbers(1, &yes)};
    rps_npu_optimizer o;

    rps_npu_optimizer_init(&o, RPS_NPU_ADAMW);
    o.learning_rate = &t[4];
    o.step = &t[5];
    o.finite = &t[6];
    ck_assert_ok(rps_npu_unscale(&bench.ops, &t[1], &t[4], &t[6], true));
    ck_assert_ok(rps_npu_unscale(&bench.ops, &t[1], NULL, &t[6], false));
    ck_assert_ok(rps_npu_count(&bench.ops, &t[5], &t[6]));
    ck_assert_ok(
            rps_npu_optimizer_step(&bench.ops, &o, &t[0], &t[1], &t[2], &t[3]));
    o.kind = RPS_NPU_SGD;
    o.finite = NULL;
    o.weight_decay = 0.0;
    ck_assert_ok(
            rps_npu_optimizer_step(&bench.ops, &o, &t[0], &t[1], NULL, NULL));
    EXPECT("unscale a/unscale: factor[1] x[3] finite[1] -> x[3] finite[1], "
           "\"accumulate\": true}",
            "finite a/finite: x[3] -> finite[1], \"accumulate\": false}",
            "count a/count: finite[1] counter[1] -> counter[1]}",
            "adamw a/adamw: gradient[3] learning_rate[1] step[1] finite[1] "
            "weight[3] m[3] v[3] -> weight[3] m[3] v[3], \"beta1\": "
            "0.90000000000000002, \"beta2\": 0.999, \"epsilon\": 1e-08, "
            "\"weight_decay\": 0.01}",
            "sgd a/sgd: gradient[3] learning_rate[1] weight[3] -> weight[3], "
            "\"weight_decay\": 0}");
    drop(t, 7);
}
END_TEST

START_TEST(copies_of_views_are_operations_and_options_are_said)
{
    rps_npu_tensor x = filled(2, 3), turned = {0}, y = filled(3, 2);

    bench.ops.options.deterministic = true;
    bench.ops.options.precision_mode = RPS_NPU_PRECISION_MIXED;
    bench.ops.options.implmode = RPS_NPU_IMPL_HIGH_PRECISION;
    bench.ops.name = NULL;
    ck_assert_ok(rps_npu_tensor_transpose(&x, 0, 1, &turned));
    ck_assert_ok(rps_npu_apply(&bench.ops, RPS_NPU_RELU, &turned, &y));
    EXPECT("contiguous contiguous: x[3,2] -> y[3,2]{}",
            "relu relu: x[3,2] -> y[3,2]{\"deterministic\": true, \"mixed\": "
            "true, \"precise\": true}");
    drop((rps_npu_tensor[]){x, turned, y}, 3);
}
END_TEST

/* --- when -------------------------------------------------------------------
 */

START_TEST(an_input_is_seen_before_and_an_output_after)
{
    rps_npu_tensor x = filled(1, 2);

    ck_assert_ok(rps_npu_scale(&bench.ops, &x, 3.0, NULL, &x));
    ck_assert_ok(rps_npu_scale(&bench.ops, &x, 3.0, NULL, &x));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    ck_assert_uint_eq(watched.count, 2);
    ck_assert(watched.all[0].input == 1.0f && watched.all[0].output == 3.0f);
    ck_assert(watched.all[1].input == 3.0f && watched.all[1].output == 9.0f);
    rps_npu_tensor_release(&x);
}
END_TEST

static rps_npu_step *
capture_scale(const rps_npu_tensor *x)
{
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_begin(bench.ops.stream));
    ck_assert_ok(rps_npu_scale(&bench.ops, x, 2.0, NULL, x));
    ck_assert_ok(rps_npu_scale(&bench.ops, x, 0.5, NULL, x));
    ck_assert_ok(rps_npu_capture_end(bench.ops.stream, &step));
    return step;
}

START_TEST(each_iteration_of_a_step_is_seen)
{
    rps_npu_tensor x = filled(2, 3);
    rps_npu_step *step = capture_scale(&x);
    uint64_t count = 0, bytes = 0;

    ck_assert_uint_eq(watched.count, 0);
    ck_assert_ok(rps_npu_step_watched(step, &count, &bytes));
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(bytes, 2 * 2 * 6 * sizeof(float));
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 3));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    ck_assert_uint_eq(watched.count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_str_eq(watched.all[i].words,
                i % 2 == 0 ? "scale a/scale: x[2,3] -> y[2,3], \"factor\": 2}"
                           : "scale a/scale: x[2,3] -> y[2,3], \"factor\": "
                             "0.5}");
        ck_assert(watched.all[i].input == (i % 2 == 0 ? 1.0f : 2.0f));
    }
    rps_npu_step_destroy(step);
    rps_npu_tensor_release(&x);
}
END_TEST

START_TEST(a_step_of_before_is_seen_without_attributes)
{
    rps_npu_tensor x = filled(2, 3);
    rps_npu_step *step;

    ck_assert_ok(rps_npu_watch(bench.npu, NULL));
    step = capture_scale(&x);
    ck_assert_ok(rps_npu_watch(bench.npu, &watcher));
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 1));
    EXPECT("scale a/scale: x[2,3] -> y[2,3]{}",
            "scale a/scale: x[2,3] -> y[2,3]{}");
    rps_npu_step_destroy(step);
    rps_npu_tensor_release(&x);
}
END_TEST

START_TEST(who_no_longer_watches_sees_nothing)
{
    rps_npu_tensor x = filled(2, 3);
    rps_npu_step *step = capture_scale(&x);

    ck_assert_ok(rps_npu_watch(bench.npu, NULL));
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 1));
    ck_assert_ok(rps_npu_scale(&bench.ops, &x, 2.0, NULL, &x));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    ck_assert_uint_eq(watched.count, 0);
    rps_npu_step_destroy(step);
    rps_npu_tensor_release(&x);
}
END_TEST

static void *
look_at_memory(void *context, const rps_npu_watched *o)
{
    float value = 0.0f;

    ck_assert_uint_eq(o->input_count, 1);
    ck_assert_uint_eq(o->output_count, 1);
    ck_assert_uint_eq(o->inputs[0].strides[0], 7);
    ck_assert_uint_eq(o->inputs[0].strides[1], 1);
    memcpy(&value, (const char *)o->inputs[0].bytes + 7 * sizeof(float),
            sizeof(value));
    ck_assert(value == numbers[9]);
    *(uint64_t *)context = o->inputs[0].address;
    return NULL;
}

static void
look_no_more(void *context, void *token, const rps_npu_watched *o)
{
    ck_assert_ptr_null(token);
    ck_assert_uint_ne(o->outputs[0].address, 0);
}

START_TEST(views_are_seen_where_they_lie)
{
    uint64_t address = 0;
    const rps_npu_watcher other = {.before = look_at_memory,
            .after = look_no_more,
            .context = &address};
    rps_npu_tensor whole = matrix(&bench, 3, 7, numbers), view = {0},
                   y = filled(3, 2);

    ck_assert_ok(rps_npu_tensor_slice(&whole, 1, 2, 2, &view));
    ck_assert_ok(rps_npu_watch(bench.npu, &other));
    ck_assert_ok(rps_npu_apply(&bench.ops, RPS_NPU_RELU, &view, &y));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    ck_assert_uint_eq(
            address, (uint64_t)(uintptr_t)rps_npu_tensor_address(&whole) +
                             2 * sizeof(float));
    drop((rps_npu_tensor[]){whole, view, y}, 3);
}
END_TEST

static void *
count_one(void *context, const rps_npu_watched *o)
{
    _Atomic uint32_t *counts = context;

    counts[o->stream]++;
    return NULL;
}

static void
count_none(void *context, void *token, const rps_npu_watched *o)
{
}

START_TEST(streams_are_told_apart_and_seen_at_once)
{
    _Atomic uint32_t counts[4] = {0};
    const rps_npu_watcher other = {
            .before = count_one, .after = count_none, .context = counts};
    rps_npu_stream *streams[2] = {
            open_stream(bench.npu, "b"), open_stream(bench.npu, "c")};
    rps_npu_ops ops = bench.ops;
    rps_npu_tensor t[2];

    ck_assert_ok(rps_npu_watch(bench.npu, &other));
    for (int s = 0; s < 2; s++) {
        ck_assert_ok(rps_npu_tensor_create(
                streams[s], RPS_NPU_F32, 1, &(uint64_t){64}, &t[s]));
    }
    for (int i = 0; i < 100; i++) {
        for (int s = 0; s < 2; s++) {
            ops.stream = streams[s];
            ck_assert_ok(rps_npu_fill(&ops, 1.0f, &t[s]));
        }
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_ok(rps_npu_stream_synchronize(streams[s]));
        rps_npu_tensor_release(&t[s]);
    }
    ck_assert_ok(rps_npu_watch(bench.npu, NULL));
    ck_assert_uint_eq(counts[0], 0);
    ck_assert_uint_eq(counts[1], 100);
    ck_assert_uint_eq(counts[2], 100);
    rps_npu_stream_destroy(streams[0]);
    rps_npu_stream_destroy(streams[1]);
}
END_TEST

START_TEST(wrong_calls_are_refused)
{
    rps_npu_watcher half = watcher;
    uint64_t count = 1, bytes = 1;

    ck_assert_int_eq(rps_npu_watch(NULL, &watcher), RPS_E_INVAL);
    half.after = NULL;
    ck_assert_int_eq(rps_npu_watch(bench.npu, &half), RPS_E_INVAL);
    assert_words("after");
    half = watcher;
    half.before = NULL;
    ck_assert_int_eq(rps_npu_watch(bench.npu, &half), RPS_E_INVAL);
    assert_words("before");
    ck_assert_int_eq(rps_npu_step_watched(NULL, &count, &bytes), RPS_E_INVAL);
    ck_assert_uint_eq(count + bytes, 0);
    ck_assert_int_eq(rps_npu_step_watched(NULL, NULL, &bytes), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_step_watched(NULL, &count, NULL), RPS_E_INVAL);
}
END_TEST

static Suite *
suite(void)
{
    Suite *suite = suite_create("npu watch");
    TCase *tcase = tcase_create("watch");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, elementwise_ones_have_labels_and_numbers);
    tcase_add_test(tcase, a_join_in_parts_reads_what_it_leaves);
    tcase_add_test(tcase, layers_are_fused_or_in_parts);
    tcase_add_test(tcase, gradients_that_are_added_to_are_inputs_too);
    tcase_add_test(tcase, the_loss_and_dropout_have_their_numbers);
    tcase_add_test(tcase, rows_and_their_dots_have_what_stays);
    tcase_add_test(tcase, optimizers_change_their_inputs);
    tcase_add_test(tcase, copies_of_views_are_operations_and_options_are_said);
    tcase_add_test(tcase, an_input_is_seen_before_and_an_output_after);
    tcase_add_test(tcase, each_iteration_of_a_step_is_seen);
    tcase_add_test(tcase, a_step_of_before_is_seen_without_attributes);
    tcase_add_test(tcase, who_no_longer_watches_sees_nothing);
    tcase_add_test(tcase, views_are_seen_where_they_lie);
    tcase_add_test(tcase, streams_are_told_apart_and_seen_at_once);
    tcase_add_test(tcase, wrong_calls_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    use_own_host();
    return run_suite(suite());
}
