/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/ni.h"

#include "base/text.h"
#include "client/precision/clean.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096u /* elements that are read at once */

/* --- by its name ---------------------------------------------------------- */

/* Is `name` the operator's, or only in it? `clean` is the name, cleaned. */
static bool
is_meant(const struct rps_dumped_operator *op, const char *whole,
        const char *name, const char *clean, bool in_it)
{
    if (in_it) {
        return strcasestr(op->name, name) != NULL ||
               strcasestr(op->type, name) != NULL ||
               strcasestr(op->clean, clean) != NULL ||
               strcasestr(whole, name) != NULL;
    }
    return strcmp(op->name, name) == 0 || strcmp(op->clean, clean) == 0 ||
           strcmp(whole, name) == 0;
}

static rps_status
no_memory(struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "no memory to look for an operator");
}

static rps_status
find(const struct rps_dumped *dumped, const char *name, const char *clean,
        bool in_it, struct rps_ni_found *found, struct rps_error *error)
{
    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        char *whole = rps_dumped_file_name(&dumped->operators[i]);

        if (whole == NULL) {
            return no_memory(error);
        }
        if (is_meant(&dumped->operators[i], whole, name, clean, in_it)) {
            found->operators[found->count++] = i;
        }
        free(whole);
    }
    return RPS_OK;
}

static bool
is_kind(const struct rps_dumped_operator *a,
        const struct rps_dumped_operator *b)
{
    return strcmp(a->type, b->type) == 0 && strcmp(a->name, b->name) == 0;
}

/* occurrence counts those of a type and name: a kind begins with 0. */
static uint32_t
count_kinds(const struct rps_dumped *dumped, const struct rps_ni_found *found)
{
    uint32_t kinds = 0;

    for (uint32_t i = 0; i < found->count; i++) {
        const struct rps_dumped_operator *op =
                &dumped->operators[found->operators[i]];
        bool seen = false;

        for (uint32_t k = 0; k < i && op->occurrence > 0 && !seen; k++) {
            seen = is_kind(op, &dumped->operators[found->operators[k]]);
        }
        kinds += seen ? 0 : 1;
    }
    return kinds;
}

rps_status
rps_ni_find(const struct rps_dumped *dumped, const char *name,
        struct rps_ni_found *found_out, struct rps_error *error)
{
    char *clean = strdup(name);
    rps_status status = RPS_OK;

    *found_out = (struct rps_ni_found){
            .operators = calloc((size_t)dumped->operator_count + 1,
                    sizeof(*found_out->operators))};
    if (clean == NULL || found_out->operators == NULL) {
        status = no_memory(error);
    } else {
        rps_dump_clean(clean);
        status = find(dumped, name, clean, false, found_out, error);
    }
    if (status == RPS_OK && found_out->count == 0 && name[0] != '\0') {
        status = find(dumped, name, clean, true, found_out, error);
    }
    free(clean);
    if (status != RPS_OK) {
        rps_ni_found_finish(found_out);
        return status;
    }
    found_out->kinds = count_kinds(dumped, found_out);
    return RPS_OK;
}

void
rps_ni_found_finish(struct rps_ni_found *found)
{
    free(found->operators);
    *found = (struct rps_ni_found){.operators = NULL};
}

/* --- in figures ----------------------------------------------------------- */

struct counting {
    struct rps_ni_figures *figures;
    bool is_signed;
    double sum;
    double lost; /* of the sum's last digits: Kahan */
};

static void
count_number(struct counting *counting, double number)
{
    struct rps_ni_figures *figures = counting->figures;
    double term, sum;

    if (isnan(number)) {
        figures->nan++;
        return;
    }
    if (isinf(number)) {
        figures->infinite++;
        return;
    }
    if (figures->finite == 0 || number < figures->min) {
        figures->min = number;
    }
    if (figures->finite == 0 || number > figures->max) {
        figures->max = number;
    }
    figures->finite++;
    term = number - counting->lost;
    sum = counting->sum + term;
    counting->lost = isfinite(sum) ? (sum - counting->sum) - term : 0.0;
    counting->sum = sum;
}

static bool
is_less(uint64_t a, uint64_t b, bool is_signed)
{
    return is_signed ? (int64_t)a < (int64_t)b : a < b;
}

static void
count_key(struct counting *counting, uint64_t key, bool is_first)
{
    struct rps_ni_figures *figures = counting->figures;

    if (is_first || is_less(key, figures->key_min, counting->is_signed)) {
        figures->key_min = key;
    }
    if (is_first || is_less(figures->key_max, key, counting->is_signed)) {
        figures->key_max = key;
    }
}

static void
count_block(struct counting *counting, uint64_t at, uint64_t n,
        const double *numbers, const uint64_t *keys)
{
    struct rps_ni_figures *figures = counting->figures;

    for (uint64_t i = 0; i < n; i++) {
        if (figures->first_count < RPS_NI_FIRST) {
            figures->first[figures->first_count] = numbers[i];
            figures->first_keys[figures->first_count] =
                    keys != NULL ? keys[i] : 0;
            figures->first_count++;
        }
        count_number(counting, numbers[i]);
        if (keys != NULL) {
            count_key(counting, keys[i], at + i == 0);
        }
    }
}

static rps_status
count_stream(struct counting *counting, struct rps_dumped_stream *stream,
        struct rps_error *error)
{
    double *numbers = calloc(BLOCK, sizeof(*numbers));
    uint64_t *keys = calloc(BLOCK, sizeof(*keys));
    rps_status status =
            numbers != NULL && keys != NULL ? RPS_OK : no_memory(error);

    while (status == RPS_OK && stream->at < stream->count) {
        const uint64_t at = stream->at;
        const uint64_t n =
                stream->count - at < BLOCK ? stream->count - at : BLOCK;
        uint64_t *whole = counting->figures->is_key ? keys : NULL;

        status = rps_dumped_stream_read(stream, n, numbers, whole, error);
        if (status == RPS_OK) {
            count_block(counting, at, n, numbers, whole);
        }
    }
    free(numbers);
    free(keys);
    return status;
}

rps_status
rps_ni_figures(const struct rps_dumped_tensor *tensor,
        struct rps_ni_figures *figures_out, struct rps_error *error)
{
    struct counting counting = {.figures = figures_out};
    struct rps_dumped_stream stream = {.fd = -1};
    rps_status status = rps_dumped_stream_open(&stream, tensor, error);

    *figures_out = (struct rps_ni_figures){
            .min = (double)NAN, .max = (double)NAN, .mean = (double)NAN};
    if (status != RPS_OK) {
        return status;
    }
    figures_out->count = stream.count;
    figures_out->is_key =
            stream.count > 0 &&
            (stream.dtype == RPS_DUMP_U64 || stream.dtype == RPS_DUMP_I64);
    counting.is_signed = stream.dtype == RPS_DUMP_I64;
    status = count_stream(&counting, &stream, error);
    rps_dumped_stream_close(&stream);
    if (status == RPS_OK && figures_out->finite > 0) {
        figures_out->mean = counting.sum / (double)figures_out->finite;
    }
    return status;
}
