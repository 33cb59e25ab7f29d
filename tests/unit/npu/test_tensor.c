/* SPDX-License-Identifier: Apache-2.0 */
/* Views against indices that are computed here. */
#include "tests/unit/npu/npu.h"

#include <recps/npu_tensor.h>

#include <pthread.h>

#define A 3
#define B 4
#define C 5

static rps_npu *npu;
static rps_npu_stream *stream;
static rps_npu_tensor cube; /* [A][B][C], each element its own index */

static rps_npu_tensor
make(enum rps_npu_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    rps_npu_tensor tensor;

    ck_assert_ok(rps_npu_tensor_create(stream, dtype, ndim, shape, &tensor));
    return tensor;
}

static void
set_up(void)
{
    int32_t values[A * B * C];

    npu = open_npu();
    stream = open_stream(npu, "s");
    cube = make(RPS_NPU_I32, 3, (const uint64_t[]){A, B, C});
    for (int32_t i = 0; i < A * B * C; i++) {
        values[i] = i;
    }
    ck_assert_ok(rps_npu_tensor_from_host(stream, &cube, values));
    ck_assert_ok(rps_npu_stream_synchronize(stream));
}

static void
tear_down(void)
{
    rps_npu_pool_stats stats;

    rps_npu_tensor_release(&cube);
    rps_npu_pool_read_stats(npu, &stats);
    ck_assert_uint_eq(stats.allocated.now, 0);
    rps_npu_stream_destroy(stream);
    rps_npu_close(npu);
}

static int32_t
element(uint64_t a, uint64_t b, uint64_t c)
{
    return (int32_t)((a * B + b) * C + c);
}

/* Its elements, in order, and their number. Released. */
static size_t
read_all(rps_npu_tensor view, int32_t *values)
{
    const size_t count = (size_t)rps_npu_tensor_elements(&view);
    rps_npu_tensor copy;

    ck_assert_ok(rps_npu_tensor_contiguous(stream, &view, &copy));
    ck_assert(rps_npu_tensor_is_contiguous(&copy));
    ck_assert_uint_eq(rps_npu_tensor_elements(&copy), count);
    ck_assert_ok(rps_npu_tensor_to_host(stream, &copy, values));
    ck_assert_ok(rps_npu_stream_synchronize(stream));
    rps_npu_tensor_release(&copy);
    rps_npu_tensor_release(&view);
    return count;
}

static rps_npu_tensor
slice(const rps_npu_tensor *tensor, uint32_t dim, uint64_t first,
        uint64_t count)
{
    rps_npu_tensor view;

    ck_assert_ok(rps_npu_tensor_slice(tensor, dim, first, count, &view));
    return view;
}

static rps_npu_tensor
transpose(const rps_npu_tensor *tensor, uint32_t a, uint32_t b)
{
    rps_npu_tensor view;

    ck_assert_ok(rps_npu_tensor_transpose(tensor, a, b, &view));
    return view;
}

static uint64_t
allocated(void)
{
    rps_npu_pool_stats stats;

    rps_npu_pool_read_stats(npu, &stats);
    return stats.allocated.now;
}

static uint64_t
operations(void)
{
    rps_npu_counters counters;

    rps_npu_read_counters(npu, &counters);
    return counters.operations;
}

/* --- views ------------------------------------------------------------------
 */

START_TEST(slices_of_any_dimension_have_their_elements_in_order)
{
    int32_t values[A * B * C];
    size_t i = 0;

    ck_assert_uint_eq(read_all(slice(&cube, 0, 1, 2), values), 2 * B * C);
    for (uint64_t a = 1; a < 3; a++) {
        for (uint64_t b = 0; b < B; b++) {
            for (uint64_t c = 0; c < C; c++) {
                ck_assert_int_eq(values[i++], element(a, b, c));
            }
        }
    }
    i = 0;
    ck_assert_uint_eq(read_all(slice(&cube, 1, 2, 1), values), A * C);
    for (uint64_t a = 0; a < A; a++) {
        for (uint64_t c = 0; c < C; c++) {
            ck_assert_int_eq(values[i++], element(a, 2, c));
        }
    }
    i = 0;
    ck_assert_uint_eq(read_all(slice(&cube, 2, 1, 3), values), A * B * 3);
    for (uint64_t a = 0; a < A; a++) {
        for (uint64_t b = 0; b < B; b++) {
            for (uint64_t c = 1; c < 4; c++) {
                ck_assert_int_eq(values[i++], element(a, b, c));
            }
        }
    }
}
END_TEST

START_TEST(a_slice_of_a_transpose_has_its_elements_in_order)
{
    rps_npu_tensor turned = transpose(&cube, 0, 2); /* [C][B][A] */
    int32_t values[A * B * C];
    size_t i = 0;

    ck_assert_uint_eq(turned.shape[0], C);
    ck_assert_uint_eq(turned.shape[2], A);
    ck_assert_uint_eq(read_all(slice(&turned, 1, 1, 2), values), C * 2 * A);
    for (uint64_t c = 0; c < C; c++) {
        for (uint64_t b = 1; b < 3; b++) {
            for (uint64_t a = 0; a < A; a++) {
                ck_assert_int_eq(values[i++], element(a, b, c));
            }
        }
    }
    rps_npu_tensor_release(&turned);
}
END_TEST

START_TEST(an_expanded_dimension_repeats)
{
    rps_npu_tensor row = slice(&cube, 1, 3, 1); /* [A][1][C] */
    rps_npu_tensor wide;
    int32_t values[2 * A * 6 * C];
    size_t i = 0;

    ck_assert_ok(rps_npu_tensor_expand(
            &row, 4, (const uint64_t[]){2, A, 6, C}, &wide));
    ck_assert_uint_eq(read_all(wide, values), 2 * A * 6 * C);
    for (uint64_t twice = 0; twice < 2; twice++) {
        for (uint64_t a = 0; a < A; a++) {
            for (uint64_t repeat = 0; repeat < 6; repeat++) {
                for (uint64_t c = 0; c < C; c++) {
                    ck_assert_int_eq(values[i++], element(a, 3, c));
                }
            }
        }
    }
    rps_npu_tensor_release(&row);
}
END_TEST

START_TEST(a_reshape_has_the_same_bytes)
{
    rps_npu_tensor flat;
    int32_t values[A * B * C];

    ck_assert_ok(rps_npu_tensor_reshape(
            &cube, 2, (const uint64_t[]){C, A * B}, &flat));
    ck_assert_ptr_eq(
            rps_npu_tensor_address(&flat), rps_npu_tensor_address(&cube));
    ck_assert_uint_eq(flat.ndim, 2);
    ck_assert_uint_eq(flat.strides[0], A * B);
    ck_assert_uint_eq(read_all(flat, values), A * B * C);
    for (int32_t i = 0; i < A * B * C; i++) {
        ck_assert_int_eq(values[i], i);
    }
}
END_TEST

START_TEST(views_copy_nothing)
{
    const uint64_t before = allocated();
    const uint64_t done = operations();
    rps_npu_tensor views[3];

    views[0] = slice(&cube, 0, 1, 1);
    views[1] = transpose(&cube, 1, 2);
    ck_assert_ok(rps_npu_tensor_contiguous(stream, &views[0], &views[2]));
    ck_assert_ptr_eq(rps_npu_tensor_address(&views[0]),
            (char *)rps_npu_tensor_address(&cube) + B * C * sizeof(int32_t));
    ck_assert_ptr_eq(rps_npu_tensor_address(&views[2]),
            rps_npu_tensor_address(&views[0]));
    ck_assert_uint_eq(allocated(), before);
    for (size_t i = 0; i < 3; i++) {
        rps_npu_tensor_release(&views[i]);
    }
    ck_assert_ok(rps_npu_stream_synchronize(stream));
    ck_assert_uint_eq(operations(), done);
}
END_TEST

START_TEST(only_a_view_with_gaps_is_copied_and_the_copy_is_counted)
{
    rps_npu_tensor turned = transpose(&cube, 0, 1);
    rps_npu_tensor copy;
    const uint64_t before = operations();

    ck_assert(!rps_npu_tensor_is_contiguous(&turned));
    ck_assert_ok(rps_npu_tensor_contiguous(stream, &turned, &copy));
    ck_assert_ptr_ne(
            rps_npu_tensor_address(&copy), rps_npu_tensor_address(&turned));
    ck_assert_ok(rps_npu_stream_synchronize(stream));
    ck_assert_uint_eq(operations(), before + 1);
    rps_npu_tensor_release(&copy);
    rps_npu_tensor_release(&turned);
}
END_TEST

START_TEST(strides_of_dimensions_of_one_do_not_matter)
{
    rps_npu_tensor column = slice(&cube, 2, 0, 1); /* [A][B][1], gaps */
    rps_npu_tensor one = slice(&column, 1, 0, 1);  /* [A][1][1], gaps */
    rps_npu_tensor element_view = slice(&one, 0, 2, 1);

    ck_assert(!rps_npu_tensor_is_contiguous(&column));
    ck_assert(!rps_npu_tensor_is_contiguous(&one));
    ck_assert(rps_npu_tensor_is_contiguous(&element_view));
    rps_npu_tensor_release(&column);
    rps_npu_tensor_release(&one);
    rps_npu_tensor_release(&element_view);
}
END_TEST

/* --- storages
 * ----------------------------------------------------------------- */

START_TEST(the_block_returns_with_the_last_view)
{
    rps_npu_tensor tensor = make(RPS_NPU_F32, 2, (const uint64_t[]){100, 100});
    const uint64_t full = allocated();
    rps_npu_tensor view = slice(&tensor, 0, 50, 1);
    rps_npu_tensor again = rps_npu_tensor_retain(&view);

    rps_npu_tensor_release(&tensor);
    ck_assert_ptr_null(tensor.storage);
    rps_npu_tensor_release(&tensor);
    rps_npu_tensor_release(&view);
    ck_assert_uint_eq(allocated(), full);
    rps_npu_tensor_release(&again);
    ck_assert_uint_eq(allocated(), full - 40448); /* 40000, in 512 */
}
END_TEST

static void *
retain_and_release(void *context)
{
    for (int i = 0; i < 20000; i++) {
        rps_npu_tensor view = rps_npu_tensor_retain(context);

        rps_npu_tensor_release(&view);
    }
    rps_npu_tensor_release(context);
    return NULL;
}

START_TEST(any_thread_may_hold_a_view)
{
    rps_npu_tensor views[4];
    pthread_t threads[4];

    views[0] = make(RPS_NPU_F64, 1, (const uint64_t[]){64});
    for (size_t i = 1; i < 4; i++) {
        views[i] = rps_npu_tensor_retain(&views[0]);
    }
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, retain_and_release,
                                 &views[i]),
                0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    ck_assert_uint_eq(allocated(), 512); /* the cube's */
}
END_TEST

START_TEST(a_tensor_without_elements_has_no_memory)
{
    rps_npu_tensor empty = make(RPS_NPU_F32, 2, (const uint64_t[]){7, 0});
    rps_npu_tensor other;

    ck_assert_ptr_null(rps_npu_tensor_address(&empty));
    ck_assert_uint_eq(rps_npu_tensor_elements(&empty), 0);
    ck_assert_uint_eq(allocated(), 512);
    ck_assert_ok(rps_npu_tensor_to_host(stream, &empty, NULL));
    ck_assert_ok(rps_npu_tensor_record_stream(&empty, stream));
    ck_assert_ok(rps_npu_tensor_contiguous(stream, &empty, &other));
    ck_assert_ok(
            rps_npu_tensor_reshape(&empty, 1, (const uint64_t[]){0}, &other));
    ck_assert_uint_eq(rps_npu_tensor_elements(&other), 0);
}
END_TEST

START_TEST(a_tensor_without_dimensions_has_one_element)
{
    rps_npu_tensor scalar = make(RPS_NPU_F64, 0, NULL);
    double value = 2.5;

    ck_assert_uint_eq(rps_npu_tensor_elements(&scalar), 1);
    ck_assert_ok(rps_npu_tensor_from_host(stream, &scalar, &value));
    ck_assert_ok(rps_npu_stream_synchronize(stream));
    value = 0;
    ck_assert_ok(rps_npu_tensor_to_host(stream, &scalar, &value));
    ck_assert_ok(rps_npu_stream_synchronize(stream));
    ck_assert_double_eq(value, 2.5);
    rps_npu_tensor_release(&scalar);
}
END_TEST

START_TEST(types_have_their_sizes)
{
    ck_assert_uint_eq(rps_npu_dtype_size(RPS_NPU_F32), 4);
    ck_assert_uint_eq(rps_npu_dtype_size(RPS_NPU_BF16), 2);
    ck_assert_uint_eq(rps_npu_dtype_size(RPS_NPU_I32), 4);
    ck_assert_uint_eq(rps_npu_dtype_size(RPS_NPU_F64), 8);
}
END_TEST

START_TEST(a_large_tensor_that_is_turned_twice_is_itself)
{
    rps_npu_tensor tensor =
            make(RPS_NPU_BF16, 4, (const uint64_t[]){2, 30, 20, 50});
    rps_npu_tensor once = transpose(&tensor, 1, 3);
    rps_npu_tensor copy, back, twice;
    static uint16_t in[60000], out[60000];

    for (size_t i = 0; i < 60000; i++) {
        in[i] = (uint16_t)(i * 7);
    }
    ck_assert_ok(rps_npu_tensor_from_host(stream, &tensor, in));
    ck_assert_ok(rps_npu_tensor_contiguous(stream, &once, &copy));
    back = transpose(&copy, 1, 3);
    ck_assert_ok(rps_npu_tensor_contiguous(stream, &back, &twice));
    ck_assert_ok(rps_npu_tensor_to_host(stream, &twice, out));
    ck_assert_ok(rps_npu_stream_synchronize(stream));
    ck_assert_mem_eq(in, out, sizeof(in));
    rps_npu_tensor_release(&tensor);
    rps_npu_tensor_release(&once);
    rps_npu_tensor_release(&copy);
    rps_npu_tensor_release(&back);
    rps_npu_tensor_release(&twice);
}
END_TEST

/* --- what is refused
 * ------------------------------------------------------------ */

static void
assert_refused(rps_status status, const rps_npu_tensor *out, const char *words)
{
    ck_assert_int_eq(status, RPS_E_INVAL);
    ck_assert_ptr_null(out->storage);
    assert_words(words);
}

START_TEST(shapes_that_no_tensor_has_are_refused)
{
    const uint64_t huge = UINT64_C(1) << 40;
    rps_npu_tensor out;

    assert_refused(rps_npu_tensor_create(stream, RPS_NPU_F32, 5,
                           (const uint64_t[]){1, 1, 1, 1, 1}, &out),
            &out, "5 dimensions");
    assert_refused(rps_npu_tensor_create(stream, RPS_NPU_F32, 2,
                           (const uint64_t[]){huge, huge}, &out),
            &out, "dimension 1 is 1099511627776");
    assert_refused(rps_npu_tensor_create(stream, RPS_NPU_F32, 3,
                           (const uint64_t[]){0, UINT64_MAX, 2}, &out),
            &out, "dimension 1 is 18446744073709551615");
    assert_refused(rps_npu_tensor_create(stream, (enum rps_npu_dtype)9, 1,
                           (const uint64_t[]){1}, &out),
            &out, "9 is no type");
}
END_TEST

START_TEST(views_that_leave_their_tensor_are_refused)
{
    rps_npu_tensor out;

    assert_refused(rps_npu_tensor_slice(&cube, 3, 0, 1, &out), &out,
            "slice: dimension 3 of a tensor that has 3");
    assert_refused(rps_npu_tensor_slice(&cube, 1, 3, 2, &out), &out,
            "slice: 2 elements from 3 of dimension 1, which has 4");
    assert_refused(rps_npu_tensor_slice(&cube, 1, UINT64_MAX, 2, &out), &out,
            "which has 4");
    assert_refused(rps_npu_tensor_slice(&cube, 1, 2, UINT64_MAX, &out), &out,
            "which has 4");
    assert_refused(rps_npu_tensor_transpose(&cube, 0, 3, &out), &out,
            "transpose: dimension 3");
    assert_refused(
            rps_npu_tensor_reshape(&cube, 1, (const uint64_t[]){61}, &out),
            &out, "reshape: 60 elements into a shape of 61");
    assert_refused(
            rps_npu_tensor_expand(&cube, 2, (const uint64_t[]){A, B}, &out),
            &out, "expand: 2 dimensions of a tensor that has 3");
    assert_refused(rps_npu_tensor_expand(
                           &cube, 3, (const uint64_t[]){A, 2 * B, C}, &out),
            &out, "dimension 1 is 4 and cannot become 8");
}
END_TEST

START_TEST(an_output_that_is_not_given_is_named)
{
    const uint64_t shape[] = {A, B, C};

    ck_assert_int_eq(rps_npu_tensor_slice(&cube, 0, 0, 1, NULL), RPS_E_INVAL);
    assert_words("slice: no view_out is given");
    ck_assert_int_eq(rps_npu_tensor_transpose(&cube, 0, 1, NULL), RPS_E_INVAL);
    assert_words("transpose: no view_out is given");
    ck_assert_int_eq(
            rps_npu_tensor_reshape(&cube, 3, shape, NULL), RPS_E_INVAL);
    assert_words("reshape: no view_out is given");
    ck_assert_int_eq(rps_npu_tensor_expand(&cube, 3, shape, NULL), RPS_E_INVAL);
    assert_words("expand: no view_out is given");
    ck_assert_int_eq(
            rps_npu_tensor_contiguous(stream, &cube, NULL), RPS_E_INVAL);
    assert_words("contiguous: no tensor_out is given");
    ck_assert_int_eq(rps_npu_tensor_create(stream, RPS_NPU_F32, 3, shape, NULL),
            RPS_E_INVAL);
    assert_words("create a tensor: no tensor_out is given");
}
END_TEST

START_TEST(a_view_with_gaps_is_not_reshaped_or_copied_to_the_host)
{
    rps_npu_tensor turned = transpose(&cube, 0, 1);
    rps_npu_tensor out;
    int32_t values[A * B * C];

    assert_refused(
            rps_npu_tensor_reshape(&turned, 1, (const uint64_t[]){60}, &out),
            &out, "rps_npu_tensor_contiguous()");
    ck_assert_int_eq(
            rps_npu_tensor_to_host(stream, &turned, values), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_tensor_from_host(stream, &turned, values), RPS_E_INVAL);
    assert_words("from the host: the tensor is a view");
    rps_npu_tensor_release(&turned);
}
END_TEST

START_TEST(a_tensor_larger_than_the_device_is_refused_with_the_pools_figures)
{
    rps_npu_tensor out;

    ck_assert_int_eq(rps_npu_tensor_create(stream, RPS_NPU_F32, 1,
                             (const uint64_t[]){UINT64_C(1) << 30}, &out),
            RPS_E_NOMEM);
    ck_assert_ptr_null(out.storage);
    assert_words(
            "no device memory for 4.0 GiB (4294967296 bytes): the pool has "
            "allocated 512 B (1 blocks)");
    assert_words("capacity");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_tensor");
    TCase *tcase = tcase_create("tensor");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, slices_of_any_dimension_have_their_elements_in_order);
    tcase_add_test(tcase, a_slice_of_a_transpose_has_its_elements_in_order);
    tcase_add_test(tcase, an_expanded_dimension_repeats);
    tcase_add_test(tcase, a_reshape_has_the_same_bytes);
    tcase_add_test(tcase, views_copy_nothing);
    tcase_add_test(
            tcase, only_a_view_with_gaps_is_copied_and_the_copy_is_counted);
    tcase_add_test(tcase, strides_of_dimensions_of_one_do_not_matter);
    tcase_add_test(tcase, the_block_returns_with_the_last_view);
    tcase_add_test(tcase, any_thread_may_hold_a_view);
    tcase_add_test(tcase, a_tensor_without_elements_has_no_memory);
    tcase_add_test(tcase, a_tensor_without_dimensions_has_one_element);
    tcase_add_test(tcase, types_have_their_sizes);
    tcase_add_test(tcase, a_large_tensor_that_is_turned_twice_is_itself);
    tcase_add_test(tcase, shapes_that_no_tensor_has_are_refused);
    tcase_add_test(tcase, views_that_leave_their_tensor_are_refused);
    tcase_add_test(tcase, an_output_that_is_not_given_is_named);
    tcase_add_test(
            tcase, a_view_with_gaps_is_not_reshaped_or_copied_to_the_host);
    tcase_add_test(tcase,
            a_tensor_larger_than_the_device_is_refused_with_the_pools_figures);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
