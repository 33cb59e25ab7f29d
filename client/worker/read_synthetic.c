/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synthetic: made-up rows. Row i depends on the settings and i alone, so any
 * row can be made without the ones before it. Keys are Zipf distributed; the
 * label is drawn from a planted logistic model (docs/DATA.md), so that what
 * is learned can be measured.
 */
#include "base/hash.h"
#include "base/text.h"
#include "client/worker/dataset_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DENSE_MAX 4096u
#define ZIPF_MAX  10.0

/* Fields of little_demo: the guide's 8 user ids and 16 item ids. */
#define DEMO_USER_FIELDS 8u
#define DEMO_ITEM_FIELDS 16u
#define DEMO_FIELDS      (DEMO_USER_FIELDS + DEMO_ITEM_FIELDS)

/* Standard deviations of the two parts of the planted log odds. */
#define DENSE_SIGNAL 1.5
#define FIELD_SIGNAL 1.5
#define DEMO_SIGNAL  2.5

/* Draws of a rejection loop; one in 10^100 rows reaches it. */
#define DRAWS_MAX 1000u

/* What a stream of random numbers is for. */
enum stream {
    STREAM_ROW = 1,
    STREAM_DENSE_WEIGHT,
    STREAM_KEY_WEIGHT
};

struct zipf {
    double exponent;
    double count;
    double h_first; /* H(1.5) - h(1) */
    double h_last;  /* H(count + 0.5) */
    double accept;
};

struct synthetic {
    uint64_t rows;
    uint64_t dense;
    uint64_t fields;
    uint64_t keys; /* of a field */
    double exponent;
    uint64_t seed;
    struct zipf zipf;
    uint64_t next;
    unsigned given; /* bits of the settings that were there */
};

static double
draw_unit(uint64_t *state)
{
    uint64_t bits = rps_mix64(*state);

    *state += UINT64_C(0x9e3779b97f4a7c15);
    return rps_unit_double(bits);
}

/* Mean 0, variance 1, within ±3: a sum of uniforms, the same bits anywhere. */
static double
draw_bell(uint64_t *state)
{
    double sum = draw_unit(state);

    sum += draw_unit(state);
    sum += draw_unit(state);
    return 2.0 * (sum - 1.5);
}

static uint64_t
stream_start(const struct synthetic *data, enum stream stream, uint64_t index)
{
    return rps_mix64(rps_mix64(data->seed + ((uint64_t)stream << 56)) ^
                     rps_mix64(index));
}

/* A weight of the planted model: mean 0, variance 1. */
static double
weight(const struct synthetic *data, enum stream stream, uint64_t index)
{
    uint64_t state = stream_start(data, stream, index);

    return draw_bell(&state);
}

/*
 * Zipf by rejection-inversion (Hörmann and Derflinger 1996): P(k) ~ k^-s for
 * k in 1..n, at a cost that does not depend on n. H is the integral of the
 * hat h(x) = x^-s; expm1 and log1p keep it exact around s = 1.
 */
static double
zipf_density(const struct zipf *zipf, double x)
{
    return exp(-zipf->exponent * log(x));
}

static double
zipf_integral(const struct zipf *zipf, double x)
{
    double log_x = log(x);
    double t = (1.0 - zipf->exponent) * log_x;

    return (fabs(t) > 1e-8 ? expm1(t) / t : 1.0 + t / 2.0) * log_x;
}

static double
zipf_inverse(const struct zipf *zipf, double y)
{
    double t = fmax(y * (1.0 - zipf->exponent), -1.0);

    return exp((fabs(t) > 1e-8 ? log1p(t) / t : 1.0 - t / 2.0) * y);
}

static void
zipf_init(struct zipf *zipf, uint64_t count, double exponent)
{
    zipf->exponent = exponent;
    zipf->count = (double)count;
    zipf->h_first = zipf_integral(zipf, 1.5) - 1.0;
    zipf->h_last = zipf_integral(zipf, zipf->count + 0.5);
    zipf->accept = 2.0 - zipf_inverse(zipf, zipf_integral(zipf, 2.5) -
                                                    zipf_density(zipf, 2.0));
}

/* 0 is the most frequent key. */
static uint64_t
zipf_draw(const struct zipf *zipf, uint64_t *state)
{
    unsigned draws;

    for (draws = 0; draws < DRAWS_MAX; draws++) {
        double y = zipf->h_last +
                   draw_unit(state) * (zipf->h_first - zipf->h_last);
        double x = zipf_inverse(zipf, y);
        double k = fmin(fmax(floor(x + 0.5), 1.0), zipf->count);

        if (k - x <= zipf->accept ||
                y >= zipf_integral(zipf, k + 0.5) - zipf_density(zipf, k)) {
            return (uint64_t)k - 1;
        }
    }
    return 0;
}

static float
draw_label(double log_odds, uint64_t *state)
{
    return draw_unit(state) < 1.0 / (1.0 + exp(-log_odds)) ? 1.0f : 0.0f;
}

static void
make_row(const struct synthetic *data, uint64_t index,
        struct rps_row_builder *row)
{
    uint64_t state = stream_start(data, STREAM_ROW, index);
    double dense_part = 0.0;
    double field_part = 0.0;
    double log_odds = 0.0;
    uint64_t i;

    for (i = 0; i < data->dense; i++) {
        double value = draw_bell(&state);

        row->dense[i] = (float)value;
        dense_part += value * weight(data, STREAM_DENSE_WEIGHT, i);
    }
    for (i = 0; i < data->fields; i++) {
        row->keys[i] =
                rps_token_pack((uint32_t)i, zipf_draw(&data->zipf, &state));
        field_part += weight(data, STREAM_KEY_WEIGHT, row->keys[i]);
    }
    if (data->dense > 0) {
        log_odds += DENSE_SIGNAL * dense_part / sqrt((double)data->dense);
    }
    log_odds += FIELD_SIGNAL * field_part / sqrt((double)data->fields);
    row->labels[0] = draw_label(log_odds, &state);
}

/* Ids are uniform and plain: users and items have a table each, and the
 * fields of a table share its ids. Both labels see all ids, each with weights
 * of its own. */
static void
make_demo_row(const struct synthetic *data, uint64_t index,
        struct rps_row_builder *row)
{
    uint64_t state = stream_start(data, STREAM_ROW, index);
    double parts[2] = {0.0, 0.0};
    uint64_t i;

    for (i = 0; i < DEMO_FIELDS; i++) {
        uint64_t id = (uint64_t)(draw_unit(&state) * (double)data->keys);
        uint64_t item = i >= DEMO_USER_FIELDS;
        uint64_t seen = rps_token_pack((uint32_t)item, id) << 1;

        row->keys[i] = id;
        parts[0] += weight(data, STREAM_KEY_WEIGHT, seen);
        parts[1] += weight(data, STREAM_KEY_WEIGHT, seen + 1);
    }
    for (i = 0; i < 2; i++) {
        row->labels[i] = draw_label(
                DEMO_SIGNAL * parts[i] / sqrt((double)DEMO_FIELDS), &state);
    }
}

static rps_status
next(struct rps_dataset *dataset, struct rps_error *error)
{
    struct synthetic *data = dataset->reader;

    if (data->next == data->rows) {
        return RPS_E_NOT_FOUND;
    }
    if (dataset->options.little_demo) {
        make_demo_row(data, data->next, &dataset->row);
    } else {
        make_row(data, data->next, &dataset->row);
    }
    data->next++;
    return RPS_OK;
}

static rps_status
rewind_rows(struct rps_dataset *dataset, struct rps_error *error)
{
    struct synthetic *data = dataset->reader;

    data->next = 0;
    return RPS_OK;
}

static rps_status
skip(struct rps_dataset *dataset, uint64_t n, struct rps_error *error)
{
    struct synthetic *data = dataset->reader;
    uint64_t left = data->rows - data->next;

    data->next += n < left ? n : left;
    return RPS_OK;
}

static void
close_data(struct rps_dataset *dataset)
{
    free(dataset->reader);
    dataset->reader = NULL;
}

static const struct rps_dataset_ops ops = {
        .next = next,
        .rewind = rewind_rows,
        .skip = skip,
        .key = rps_dataset_plain_key,
        .close = close_data,
};

#define ZIPF_BIT 31u /* the others have their places in a list */

struct setting {
    const char *name;
    uint64_t *number;
    uint64_t low;
    uint64_t high;
    bool demo; /* little_demo has it, too */
};

static rps_status
set_exponent(struct synthetic *data, const char *text, struct rps_error *error)
{
    if (!rps_parse_double(text, &data->exponent) || data->exponent < 0.0 ||
            data->exponent > ZIPF_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "data synthetic: zipf=%.80s is not a number from 0 to %g", text,
                ZIPF_MAX);
    }
    return RPS_OK;
}

static rps_status
refuse_setting(bool demo, const char *name, struct rps_error *error)
{
    return rps_fail(error, RPS_E_INVAL,
            demo ? "data synthetic: little_demo does not take \"%.80s\"; its "
                   "settings are rows, keys, seed"
                 : "data synthetic: unknown setting \"%.80s\"; the settings "
                   "are rows, dense, fields, keys, zipf, seed",
            name);
}

/* Two values of one setting: which one was meant is not known. */
static rps_status
note_given(struct synthetic *data, unsigned bit, const char *name,
        struct rps_error *error)
{
    if ((data->given & (1u << bit)) != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "data synthetic: %s is set twice; set it once", name);
    }
    data->given |= 1u << bit;
    return RPS_OK;
}

static rps_status
set_one(struct rps_dataset *dataset, const char *name, const char *value,
        struct rps_error *error)
{
    struct synthetic *data = dataset->reader;
    const struct setting settings[] = {
            {"rows", &data->rows, 1, UINT64_C(1) << 53, true},
            {"keys", &data->keys, 1, RPS_TOKEN_LIMIT - 1, true},
            {"seed", &data->seed, 0, UINT64_MAX, true},
            {"dense", &data->dense, 0, DENSE_MAX, false},
            {"fields", &data->fields, 1, RPS_FIELD_LIMIT, false},
    };
    const bool demo = dataset->options.little_demo;
    uint64_t number;
    size_t i;

    if (!demo && strcmp(name, "zipf") == 0) {
        rps_status status = note_given(data, ZIPF_BIT, name, error);

        return status == RPS_OK ? set_exponent(data, value, error) : status;
    }
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const struct setting *setting = &settings[i];

        if (strcmp(name, setting->name) != 0 || (demo && !setting->demo)) {
            continue;
        }
        if (!rps_parse_u64(value, &number) || number < setting->low ||
                number > setting->high) {
            return rps_fail(error, RPS_E_INVAL,
                    "data synthetic: %s=%.80s is not an integer from %llu "
                    "to %llu",
                    name, value, (unsigned long long)setting->low,
                    (unsigned long long)setting->high);
        }
        *setting->number = number;
        return note_given(data, (unsigned)i, name, error);
    }
    return refuse_setting(demo, name, error);
}

static rps_status
parse_settings(
        struct rps_dataset *dataset, char *settings, struct rps_error *error)
{
    char *rest = settings;
    char *name;
    rps_status status = RPS_OK;

    if (settings[0] == '\0') {
        return RPS_OK; /* "synthetic:" is all defaults */
    }
    while (status == RPS_OK && (name = strsep(&rest, ",")) != NULL) {
        char *value = strchr(name, '=');

        if (value == NULL) {
            return rps_fail(error, RPS_E_INVAL,
                    "data synthetic: \"%.80s\" is not of the form name=value",
                    name);
        }
        *value++ = '\0';
        status = set_one(dataset, name, value, error);
    }
    return status;
}

static rps_status
prepare(struct rps_dataset *dataset, struct rps_error *error)
{
    struct synthetic *data = dataset->reader;
    uint32_t field;
    rps_status status;

    if (dataset->options.little_demo) {
        data->dense = 0;
        data->fields = DEMO_FIELDS;
    }
    zipf_init(&data->zipf, data->keys, data->exponent);
    dataset->shape = (struct rps_dataset_shape){
            .labels = dataset->options.little_demo ? 2 : 1,
            .dense = (uint32_t)data->dense,
            .fields = (uint32_t)data->fields};
    dataset->rows = data->rows;
    dataset->rows_known = true;
    status = rps_row_builder_init(dataset, error);
    for (field = 0; field <= data->fields && status == RPS_OK; field++) {
        dataset->row.offsets[field] = field;
    }
    return status;
}

rps_status
rps_dataset_open_synthetic(struct rps_dataset *dataset, const char *settings,
        struct rps_error *error)
{
    struct synthetic *data = malloc(sizeof(*data));
    char *copy = strdup(settings);
    rps_status status = RPS_E_NOMEM;

    if (data == NULL || copy == NULL) {
        free(data);
        free(copy);
        return rps_fail(error, status, "data synthetic: no memory");
    }
    *data = (struct synthetic){.rows = 100000,
            .dense = 13,
            .fields = 26,
            .keys = dataset->options.little_demo ? 1000 : 10000,
            .exponent = 1.05,
            .seed = 1};
    dataset->reader = data;
    dataset->ops = &ops;
    status = parse_settings(dataset, copy, error);
    if (status == RPS_OK) {
        status = prepare(dataset, error);
    }
    free(copy);
    return status;
}
