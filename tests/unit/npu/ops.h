/* SPDX-License-Identifier: Apache-2.0 */
/* A device, a stream and tensors for the tests of operators. */
#ifndef RPS_TESTS_UNIT_NPU_OPS_H
#define RPS_TESTS_UNIT_NPU_OPS_H

#include "tests/unit/npu/models.h"
#include "tests/unit/npu/npu.h"

#include <recps/npu_ops.h>

struct bench {
    rps_npu *npu;
    rps_npu_ops ops;
};

static inline struct bench
open_bench(void)
{
    struct bench bench = {.npu = open_npu()};

    bench.ops.stream = open_stream(bench.npu, "compute");
    rps_npu_ops_options_init(&bench.ops.options);
    return bench;
}

static inline void
close_bench(struct bench *bench)
{
    ck_assert_ok(rps_npu_stream_synchronize(bench->ops.stream));
    rps_npu_stream_destroy(bench->ops.stream);
    rps_npu_close(bench->npu);
}

/* [0, 1, 0]: a dimension of 0 ends the list */
static inline rps_npu_tensor
make_tensor(const struct bench *bench, enum rps_npu_dtype dtype, uint32_t ndim,
        const uint64_t *shape, const void *values)
{
    rps_npu_tensor tensor = {0};

    ck_assert_ok(rps_npu_tensor_create(
            bench->ops.stream, dtype, ndim, shape, &tensor));
    if (values != NULL && rps_npu_tensor_elements(&tensor) > 0) {
        ck_assert_ok(
                rps_npu_tensor_from_host(bench->ops.stream, &tensor, values));
        ck_assert_ok(rps_npu_stream_synchronize(bench->ops.stream));
    }
    return tensor;
}

static inline rps_npu_tensor
vector(const struct bench *bench, uint64_t n, const float *values)
{
    return make_tensor(bench, RPS_NPU_F32, 1, &n, values);
}

static inline rps_npu_tensor
matrix(const struct bench *bench, uint64_t rows, uint64_t columns,
        const float *values)
{
    const uint64_t shape[] = {rows, columns};

    return make_tensor(bench, RPS_NPU_F32, 2, shape, values);
}

static inline rps_npu_tensor
scalars(const struct bench *bench, uint64_t n, const double *values)
{
    return make_tensor(bench, RPS_NPU_F64, 1, &n, values);
}

/* A matrix that is columns [first, first + columns) of a wider one, which is
 * noise; the whole in *whole_out. */
static inline rps_npu_tensor
slice_of_wider(const struct bench *bench, uint64_t rows, uint64_t columns,
        uint64_t first, rps_npu_tensor *whole_out)
{
    const uint64_t wide = columns + first + 2;
    uint64_t state = 77;
    float *values = noise_floats(rows * wide, 1.0, &state);
    rps_npu_tensor view = {0};

    *whole_out = matrix(bench, rows, wide, values);
    ck_assert_ok(rps_npu_tensor_slice(whole_out, 1, first, columns, &view));
    free(values);
    return view;
}

/* Its elements, contiguous; free() them. */
static inline float *
read_tensor(const struct bench *bench, const rps_npu_tensor *tensor)
{
    const uint64_t n = rps_npu_tensor_elements(tensor);
    float *values = zero_floats(n);
    rps_npu_tensor packed = {0};

    if (n == 0) {
        return values;
    }
    ck_assert_ok(rps_npu_tensor_contiguous(bench->ops.stream, tensor, &packed));
    ck_assert_ok(rps_npu_tensor_to_host(bench->ops.stream, &packed, values));
    ck_assert_ok(rps_npu_stream_synchronize(bench->ops.stream));
    rps_npu_tensor_release(&packed);
    return values;
}

static inline double
read_double(const struct bench *bench, const rps_npu_tensor *tensor)
{
    double value = 0.0;

    ck_assert_ok(rps_npu_tensor_to_host(bench->ops.stream, tensor, &value));
    ck_assert_ok(rps_npu_stream_synchronize(bench->ops.stream));
    return value;
}

static inline void
write_double(
        const struct bench *bench, const rps_npu_tensor *tensor, double value)
{
    ck_assert_ok(rps_npu_tensor_from_host(bench->ops.stream, tensor, &value));
    ck_assert_ok(rps_npu_stream_synchronize(bench->ops.stream));
}

static inline uint64_t
operations(const struct bench *bench)
{
    rps_npu_counters counters;

    ck_assert_ok(rps_npu_stream_synchronize(bench->ops.stream));
    rps_npu_read_counters(bench->npu, &counters);
    return counters.operations;
}

static inline void
assert_tensors_same(const struct bench *bench, const char *what,
        const rps_npu_tensor *a, const rps_npu_tensor *b)
{
    float *left = read_tensor(bench, a), *right = read_tensor(bench, b);

    ck_assert_uint_eq(rps_npu_tensor_elements(a), rps_npu_tensor_elements(b));
    assert_same_bits(what, left, right, rps_npu_tensor_elements(a));
    free(left);
    free(right);
}

static inline void
assert_tensor_near(const struct bench *bench, const char *what,
        const rps_npu_tensor *tensor, const double *want, double most)
{
    float *got = read_tensor(bench, tensor);

    assert_near(what, got, want, rps_npu_tensor_elements(tensor), most);
    free(got);
}

#endif /* RPS_TESTS_UNIT_NPU_OPS_H */
