/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of two tensors: read a part at a time, so that their size does not
 * matter. */
#include "client/precision/compare_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART 4096u /* elements */

void
rps_compare_problem(struct rps_compared_tensor *tensor, bool damaged,
        const char *format, ...)
{
    va_list arguments;

    free(tensor->problem);
    va_start(arguments, format);
    if (vasprintf(&tensor->problem, format, arguments) < 0) {
        tensor->problem = NULL;
    }
    va_end(arguments);
    tensor->damaged = damaged;
}

bool
rps_compare_is_whole(enum rps_dump_dtype dtype)
{
    return dtype >= RPS_DUMP_I32;
}

/* --- sums ---------------------------------------------------------------- */

static void
add_finite(struct rps_compare_sums *sums, double l, double r)
{
    const double absolute = fabs(l - r);
    const double relative = absolute == 0.0 ? 0.0 : absolute / fabs(l);

    sums->ll += l * l;
    sums->rr += r * r;
    sums->lr += l * r;
    sums->sum_absolute += absolute;
    sums->max_absolute =
            absolute > sums->max_absolute ? absolute : sums->max_absolute;
    sums->max_relative =
            relative > sums->max_relative ? relative : sums->max_relative;
    sums->pairs++;
}

void
rps_compare_sums_add(struct rps_compare_sums *sums, const double *left,
        const double *right, uint64_t n)
{
    sums->equal = sums->equal && memcmp(left, right, n * sizeof(*left)) == 0;
    sums->count += n;
    for (uint64_t i = 0; i < n; i++) {
        if (isfinite(left[i]) && isfinite(right[i])) {
            add_finite(sums, left[i], right[i]);
            continue;
        }
        sums->left_nan += isnan(left[i]) ? 1 : 0;
        sums->left_inf += isinf(left[i]) ? 1 : 0;
        sums->right_nan += isnan(right[i]) ? 1 : 0;
        sums->right_inf += isinf(right[i]) ? 1 : 0;
    }
}

double
rps_compare_sums_cosine(const struct rps_compare_sums *sums)
{
    double cosine;

    if (sums->equal) {
        return 1.0;
    }
    if (sums->pairs < sums->count) {
        return (double)NAN;
    }
    if (sums->ll == 0.0 || sums->rr == 0.0) {
        return sums->ll == sums->rr ? 1.0 : 0.0;
    }
    cosine = sums->lr / (sqrt(sums->ll) * sqrt(sums->rr));
    return cosine > 1.0 ? 1.0 : cosine < -1.0 ? -1.0 : cosine;
}

double
rps_compare_sums_ratio(const struct rps_compare_sums *sums)
{
    if (sums->equal || sums->ll == sums->rr) {
        return 1.0;
    }
    return sums->ll < sums->rr ? sqrt(sums->ll / sums->rr)
                               : sqrt(sums->rr / sums->ll);
}

double
rps_compare_length_threshold(double threshold)
{
    return fmax(0.0, 1.0 - sqrt(2.0 - 2.0 * threshold));
}

void
rps_compare_sums_give(
        const struct rps_compare_sums *sums, struct rps_compared_tensor *tensor)
{
    tensor->readable = true;
    tensor->equal_values = sums->equal;
    tensor->equal_bytes =
            sums->equal && tensor->left->dtype == tensor->right->dtype;
    tensor->cosine = rps_compare_sums_cosine(sums);
    tensor->length_ratio = rps_compare_sums_ratio(sums);
    tensor->max_absolute = sums->max_absolute;
    tensor->max_relative = sums->max_relative;
    tensor->mean_absolute =
            sums->pairs > 0 ? sums->sum_absolute / (double)sums->pairs : 0.0;
    tensor->left_nan = sums->left_nan;
    tensor->left_inf = sums->left_inf;
    tensor->right_nan = sums->right_nan;
    tensor->right_inf = sums->right_inf;
}

/* --- two files ----------------------------------------------------------- */

static rps_status
add_parts(struct rps_dumped_stream streams[2], struct rps_compare_sums *sums,
        struct rps_error *error)
{
    double numbers[2][PART];
    uint64_t keys[2][PART];
    const bool wide = (streams[0].dtype == RPS_DUMP_U64 ||
                              streams[0].dtype == RPS_DUMP_I64) &&
                      (streams[1].dtype == RPS_DUMP_U64 ||
                              streams[1].dtype == RPS_DUMP_I64);

    while (streams[0].at < streams[0].count) {
        const uint64_t left = streams[0].count - streams[0].at;
        const uint64_t n = left < PART ? left : PART;

        for (int side = 0; side < 2; side++) {
            const rps_status status = rps_dumped_stream_read(&streams[side], n,
                    numbers[side], wide ? keys[side] : NULL, error);

            if (status != RPS_OK) {
                return status;
            }
        }
        rps_compare_sums_add(sums, numbers[0], numbers[1], n);
        /* f64 may have rounded two keys to one number */
        sums->equal =
                sums->equal &&
                (!wide || memcmp(keys[0], keys[1], n * sizeof(**keys)) == 0);
    }
    return RPS_OK;
}

static void
tell_shapes(struct rps_compared_tensor *tensor)
{
    struct rps_text shapes[2] = {{.bytes = NULL}, {.bytes = NULL}};

    rps_dumped_add_shape(&shapes[0], tensor->left);
    rps_dumped_add_shape(&shapes[1], tensor->right);
    rps_compare_problem(tensor, true, "%s and %s: shapes %s and %s",
            tensor->left->file != NULL ? tensor->left->file : "(no elements)",
            tensor->right->file != NULL ? tensor->right->file : "(no elements)",
            shapes[0].bytes, shapes[1].bytes);
    rps_text_finish(&shapes[0]);
    rps_text_finish(&shapes[1]);
    tensor->agrees = false;
    tensor->cosine = (double)NAN;
}

static bool
same_shape(const struct rps_dumped_tensor *left,
        const struct rps_dumped_tensor *right)
{
    return left->ndim == right->ndim &&
           memcmp(left->shape, right->shape,
                   left->ndim * sizeof(left->shape[0])) == 0;
}

static void
compare_streams(struct rps_compared_tensor *tensor,
        struct rps_dumped_stream streams[2], bool flat)
{
    struct rps_compare_sums sums = {.equal = true};
    struct rps_error error = {.text = ""};

    if (streams[0].count != streams[1].count ||
            (!flat && !same_shape(tensor->left, tensor->right))) {
        tell_shapes(tensor);
        return;
    }
    if (add_parts(streams, &sums, &error) != RPS_OK) {
        rps_compare_problem(tensor, true, "%s", error.text);
        return;
    }
    rps_compare_sums_give(&sums, tensor);
}

static bool
do_agree(const struct rps_compared_tensor *tensor,
        const struct rps_compare_options *options)
{
    if (tensor->equal_bytes || !tensor->readable) {
        return true;
    }
    if (options->exact) {
        return false;
    }
    if (rps_compare_is_whole(tensor->left->dtype) &&
            rps_compare_is_whole(tensor->right->dtype)) {
        return tensor->equal_values;
    }
    /* NaN agrees with nothing */
    return tensor->cosine >= options->threshold &&
           tensor->length_ratio >=
                   rps_compare_length_threshold(options->threshold);
}

void
rps_compare_tensor(struct rps_compared_tensor *tensor, bool flat,
        const struct rps_compare_options *options)
{
    struct rps_dumped_stream streams[2] = {{.fd = -1}, {.fd = -1}};
    struct rps_error error = {.text = ""};

    tensor->agrees = true;
    tensor->cosine = (double)NAN;
    if (tensor->left == NULL || tensor->right == NULL) {
        return;
    }
    if (rps_dumped_stream_open(&streams[0], tensor->left, &error) != RPS_OK ||
            rps_dumped_stream_open(&streams[1], tensor->right, &error) !=
                    RPS_OK) {
        rps_compare_problem(tensor, true, "%s", error.text);
    } else {
        compare_streams(tensor, streams, flat);
        tensor->agrees = tensor->agrees && do_agree(tensor, options);
    }
    rps_dumped_stream_close(&streams[0]);
    rps_dumped_stream_close(&streams[1]);
}
