/* SPDX-License-Identifier: Apache-2.0 */
/* What operators refuse before a kernel runs. */
#include "tests/unit/npu/ops.h"

#define N 128u /* f32: a block of the pool */

static struct bench bench;
static rps_npu_tensor x;
static rps_npu_tensor y;
static rps_npu_tensor next; /* behind y in the pool's segment */

static void
set_up(void)
{
    bench = open_bench();
    x = vector(&bench, N, NULL);
    y = vector(&bench, N, NULL);
    next = vector(&bench, N, NULL);
    ck_assert_ok(rps_npu_fill(&bench.ops, 1.0f, &x));
    ck_assert_ok(rps_npu_fill(&bench.ops, 1.0f, &y));
    ck_assert_ok(rps_npu_fill(&bench.ops, 7.0f, &next));
}

static void
tear_down(void)
{
    rps_npu_tensor_release(&x);
    rps_npu_tensor_release(&y);
    rps_npu_tensor_release(&next);
    close_bench(&bench);
}

static void
assert_next_is_whole(void)
{
    float *values = read_tensor(&bench, &next);

    for (size_t i = 0; i < N; i++) {
        ck_assert(values[i] == 7.0f);
    }
    free(values);
}

/* As an output, as an input, as what is copied. */
static void
assert_leaves(const rps_npu_tensor *view)
{
    static float host[4 * N];
    rps_npu_tensor copy = {0};

    ck_assert_int_eq(rps_npu_fill(&bench.ops, 2.0f, view), RPS_E_INVAL);
    assert_words("fill: y: its elements take ");
    assert_words("leave its memory");
    ck_assert_int_eq(
            rps_npu_unscale(&bench.ops, view, NULL, &x, false), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_tensor_contiguous(bench.ops.stream, view, &copy),
            RPS_E_INVAL);
    ck_assert_ptr_null(copy.storage);
    ck_assert_int_eq(rps_npu_tensor_from_host(bench.ops.stream, view, host),
            RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_tensor_to_host(bench.ops.stream, view, host), RPS_E_INVAL);
    assert_next_is_whole();
}

START_TEST(a_view_with_more_elements_than_its_memory_is_refused)
{
    rps_npu_tensor view = y;

    view.shape[0] = N + 1;
    assert_leaves(&view);
    assert_words("516 bytes from offset 0");
    assert_words("ends after 512");
    view.shape[0] = 2 * N;
    assert_leaves(&view);
    view.shape[0] = N;
    ck_assert_ok(rps_npu_fill(&bench.ops, 2.0f, &view));
}
END_TEST

START_TEST(an_offset_beyond_the_memory_is_refused)
{
    rps_npu_tensor view = y;

    view.offset = 4;
    assert_leaves(&view);
    view.shape[0] = N - 1;
    ck_assert_ok(rps_npu_fill(&bench.ops, 2.0f, &view));
    view.offset = 512; /* in the pool's segment, in next's block */
    assert_leaves(&view);
    view.offset = UINT64_MAX - 3; /* overflows to y - 4 */
    assert_leaves(&view);
}
END_TEST

START_TEST(strides_that_overflow_are_refused)
{
    rps_npu_tensor view = y;

    view.ndim = 2;
    view.shape[0] = 5;
    view.shape[1] = 2;
    view.strides[1] = 1;
    view.strides[0] = UINT64_C(1) << 62; /* 4 of them are 0 */
    assert_leaves(&view);
    view.strides[0] = UINT64_MAX / 2;
    assert_leaves(&view);
    view.strides[0] = 32;
    assert_leaves(&view); /* its last two elements are the neighbour's */
    view.strides[0] = 31;
    ck_assert_ok(rps_npu_fill(&bench.ops, 2.0f, &view));
}
END_TEST

START_TEST(more_elements_than_can_be_counted_are_refused)
{
    rps_npu_tensor view = x; /* each element 2^64 times: 0 of them */

    view.ndim = 2;
    view.shape[0] = view.shape[1] = UINT64_C(1) << 32;
    view.strides[0] = view.strides[1] = 0;
    ck_assert_int_eq(
            rps_npu_apply(&bench.ops, RPS_NPU_RELU, &view, &view), RPS_E_INVAL);
    assert_words("too many elements");
}
END_TEST

START_TEST(a_tensors_block_is_given_back_by_the_tensor_alone)
{
    void *address = rps_npu_tensor_address(&y);
    rps_npu_pool_stats before, after;

    rps_npu_pool_read_stats(bench.npu, &before);
    ck_assert_int_eq(rps_npu_pool_free(bench.npu, address), RPS_E_INVAL);
    assert_words("belongs to a tensor");
    rps_npu_pool_read_stats(bench.npu, &after);
    ck_assert_uint_eq(after.blocks.now, before.blocks.now);
    ck_assert_ok(rps_npu_fill(&bench.ops, 2.0f, &y));
    rps_npu_tensor_release(&y);
    rps_npu_pool_read_stats(bench.npu, &after);
    ck_assert_uint_eq(after.blocks.now, before.blocks.now - 1);
    ck_assert_ok(rps_npu_pool_alloc(bench.ops.stream, 512, &address));
    ck_assert_ok(rps_npu_pool_free(bench.npu, address)); /* nobody's now */
}
END_TEST

static rps_status
relu(const rps_npu_ops *ops)
{
    return rps_npu_apply(ops, RPS_NPU_RELU, &x, &y);
}

START_TEST(modes_that_do_not_exist_are_refused)
{
    rps_npu_ops ops = bench.ops;

    ops.options.implmode = (enum rps_npu_implmode)7;
    ck_assert_int_eq(relu(&ops), RPS_E_INVAL);
    assert_words("relu: its implmode is 7: must be");
    ops = bench.ops;
    ops.options.precision_mode = (enum rps_npu_precision_mode)9;
    ck_assert_int_eq(relu(&ops), RPS_E_INVAL);
    assert_words("relu: its precision_mode is 9: must be");
    ck_assert_ok(relu(&bench.ops));
}
END_TEST

START_TEST(an_activation_that_does_not_exist_is_refused)
{
    rps_npu_tensor view = {0};
    rps_npu_linear layer = {.bias = &x, .y = &view};
    rps_npu_linear_gradient back = {.dy = &view, .dbias = &x};

    layer.activation = back.activation = (enum rps_npu_activation)3;
    ck_assert_ok(
            rps_npu_tensor_reshape(&y, 2, (const uint64_t[]){1, N}, &view));
    ck_assert_int_eq(rps_npu_linear_forward(&bench.ops, &layer), RPS_E_INVAL);
    assert_words("no activation 3");
    ck_assert_int_eq(rps_npu_linear_backward(&bench.ops, &back), RPS_E_INVAL);
    assert_words("no activation 3");
    rps_npu_tensor_release(&view);
}
END_TEST

START_TEST(operators_without_what_they_need_are_refused)
{
    const rps_npu_ops *ops = &bench.ops;

    ck_assert_int_eq(rps_npu_add(NULL, &x, &x, &y), RPS_E_INVAL);
    assert_words("add: no ops are given");
    ck_assert_int_eq(rps_npu_add(ops, NULL, &x, &y), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_add(ops, &x, &x, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_concat(ops, NULL, 2, &y), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_linear_forward(ops, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_linear_backward(ops, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_bce_with_logits(ops, NULL), RPS_E_INVAL);
    assert_words("bce: no bce is given");
    ck_assert_int_eq(rps_npu_dropout_apply(ops, NULL, &x, &y), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_pool_bags(ops, NULL, &x, &y), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_pool_bags_backward(ops, NULL, &x, &y), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_optimizer_step(ops, NULL, &x, &y, NULL, NULL), RPS_E_INVAL);
}
END_TEST

/* Columns [first, first + count) of a matrix, or its rows. */
static rps_npu_tensor
part(const rps_npu_tensor *whole, uint32_t dim, uint64_t first, uint64_t count)
{
    rps_npu_tensor view = {0};

    ck_assert_ok(rps_npu_tensor_slice(whole, dim, first, count, &view));
    return view;
}

static rps_status
add_parts(rps_npu_tensor a, rps_npu_tensor b, rps_npu_tensor sum)
{
    const rps_status status = rps_npu_add(&bench.ops, &a, &b, &sum);

    rps_npu_tensor_release(&a);
    rps_npu_tensor_release(&b);
    rps_npu_tensor_release(&sum);
    return status;
}

START_TEST(an_output_that_shares_memory_with_an_input_is_refused)
{
    ck_assert_int_eq(
            add_parts(part(&x, 0, 0, 8), part(&y, 0, 0, 8), part(&x, 0, 1, 8)),
            RPS_E_INVAL);
    assert_words("add: output 0 shares memory with input 0: they must be");
    ck_assert_int_eq(
            add_parts(part(&y, 0, 0, 8), part(&x, 0, 7, 8), part(&x, 0, 0, 8)),
            RPS_E_INVAL);
    ck_assert_ok(
            add_parts(part(&y, 0, 0, 8), part(&x, 0, 8, 8), part(&x, 0, 0, 8)));
    ck_assert_ok(rps_npu_add(&bench.ops, &x, &x, &x)); /* in place */
    ck_assert_ok(rps_npu_apply_backward(&bench.ops, RPS_NPU_RELU, &x, &y, &y));
    ck_assert_int_eq(
            rps_npu_apply_backward(&bench.ops, RPS_NPU_RELU, &x, &y, &x),
            RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_cast(&bench.ops, &x, &x), RPS_E_INVAL);
}
END_TEST

START_TEST(a_layer_is_not_computed_in_place)
{
    rps_npu_tensor square = matrix(&bench, 8, 8, NULL);
    rps_npu_tensor weight = matrix(&bench, 8, 8, NULL);
    rps_npu_linear layer = {.x = &square, .weight = &weight, .y = &square};

    ck_assert_int_eq(rps_npu_linear_forward(&bench.ops, &layer), RPS_E_INVAL);
    assert_words("output 0 shares memory with input 0");
    layer.y = &weight;
    ck_assert_int_eq(rps_npu_linear_forward(&bench.ops, &layer), RPS_E_INVAL);
    rps_npu_tensor_release(&square);
    rps_npu_tensor_release(&weight);
}
END_TEST

START_TEST(slices_between_each_other_are_apart)
{
    rps_npu_tensor wide = matrix(&bench, 6, 12, NULL);

    ck_assert_ok(rps_npu_fill(&bench.ops, 1.0f, &wide));
    ck_assert_ok(add_parts(
            part(&wide, 1, 0, 4), part(&wide, 1, 8, 4), part(&wide, 1, 4, 4)));
    ck_assert_ok(add_parts(
            part(&wide, 0, 0, 2), part(&wide, 0, 4, 2), part(&wide, 0, 2, 2)));
    ck_assert_int_eq(add_parts(part(&wide, 1, 0, 4), part(&wide, 1, 8, 4),
                             part(&wide, 1, 5, 4)),
            RPS_E_INVAL);
    assert_words("shares memory with input 1");
    /* the last column, and the first one of the next row behind it */
    ck_assert_ok(add_parts(
            part(&wide, 1, 0, 1), part(&wide, 1, 0, 1), part(&wide, 1, 11, 1)));
    rps_npu_tensor_release(&wide);
}
END_TEST

START_TEST(outputs_that_share_memory_are_refused)
{
    rps_npu_tensor wide = matrix(&bench, 6, 12, NULL);
    rps_npu_tensor to = matrix(&bench, 6, 24, NULL);
    rps_npu_tensor parts[] = {part(&to, 1, 0, 6), part(&to, 1, 5, 6)};

    ck_assert_int_eq(rps_npu_split(&bench.ops, &wide, parts, 2), RPS_E_INVAL);
    assert_words("split: outputs 0 and 1 share memory");
    rps_npu_tensor_release(&parts[1]);
    parts[1] = part(&to, 1, 12, 6);
    ck_assert_ok(rps_npu_split(&bench.ops, &wide, parts, 2));
    rps_npu_tensor_release(&parts[0]);
    rps_npu_tensor_release(&parts[1]);
    rps_npu_tensor_release(&wide);
    rps_npu_tensor_release(&to);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_ops_checks");
    TCase *tcase = tcase_create("checks");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_view_with_more_elements_than_its_memory_is_refused);
    tcase_add_test(tcase, an_offset_beyond_the_memory_is_refused);
    tcase_add_test(tcase, strides_that_overflow_are_refused);
    tcase_add_test(tcase, more_elements_than_can_be_counted_are_refused);
    tcase_add_test(tcase, a_tensors_block_is_given_back_by_the_tensor_alone);
    tcase_add_test(tcase, modes_that_do_not_exist_are_refused);
    tcase_add_test(tcase, an_activation_that_does_not_exist_is_refused);
    tcase_add_test(tcase, operators_without_what_they_need_are_refused);
    tcase_add_test(
            tcase, an_output_that_shares_memory_with_an_input_is_refused);
    tcase_add_test(tcase, a_layer_is_not_computed_in_place);
    tcase_add_test(tcase, slices_between_each_other_are_apart);
    tcase_add_test(tcase, outputs_that_share_memory_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
