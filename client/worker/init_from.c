/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --init-from DIR: start weights of another program. A .npy a dense
 * variable, TABLE.weight.npy for a sparse table, and a file that says which
 * row of it belongs to which field and token: keys.tsv, or TABLE.keys.tsv
 * where there are several tables. Only keys of training rows are assigned:
 * another program's table has rows for keys that training never sees, and
 * here such keys are absent (zeros at evaluation).
 */
#include "base/file.h"
#include "base/hash.h"
#include "base/npy.h"
#include "base/text.h"
#include "client/worker/run.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX  ((size_t)64 << 30)
#define ASSIGN_KEYS_MAX 4096u
#define KEYS_FIRST      1024u

/* An open-addressed set of 64-bit keys; cell 0 means empty, so the key 0
 * has a flag of its own. live <= capacity / 2. */
struct key_set {
    uint64_t *cells;
    uint8_t *marks; /* of a cell: its key was assigned */
    size_t capacity;
    size_t live;
    bool has_zero;
    uint8_t zero_mark;
};

static size_t
cell_of(const struct key_set *set, uint64_t key)
{
    size_t i = (size_t)rps_mix64(key) & (set->capacity - 1);

    while (set->cells[i] != 0 && set->cells[i] != key) {
        i = (i + 1) & (set->capacity - 1);
    }
    return i;
}

static bool
set_grow(struct key_set *set)
{
    struct key_set grown = {
            .capacity = set->capacity > 0 ? set->capacity * 2 : KEYS_FIRST,
            .live = set->live,
            .has_zero = set->has_zero,
    };

    grown.cells = calloc(grown.capacity, sizeof(*grown.cells));
    grown.marks = calloc(grown.capacity, 1);
    if (grown.cells == NULL || grown.marks == NULL) {
        free(grown.cells);
        free(grown.marks);
        return false;
    }
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->cells[i] != 0) {
            grown.cells[cell_of(&grown, set->cells[i])] = set->cells[i];
        }
    }
    free(set->cells);
    free(set->marks);
    *set = grown;
    return true;
}

static bool
set_add(struct key_set *set, uint64_t key)
{
    size_t i;

    if (key == 0) {
        set->has_zero = true;
        return true;
    }
    if (set->live * 2 >= set->capacity && !set_grow(set)) {
        return false;
    }
    i = cell_of(set, key);
    if (set->cells[i] == 0) {
        set->cells[i] = key;
        set->live++;
    }
    return true;
}

/* The mark of a key that is in the set, or NULL. */
static uint8_t *
set_mark(struct key_set *set, uint64_t key)
{
    size_t i;

    if (key == 0) {
        return set->has_zero ? &set->zero_mark : NULL;
    }
    if (set->capacity == 0) {
        return NULL;
    }
    i = cell_of(set, key);
    return set->cells[i] == key ? &set->marks[i] : NULL;
}

static void
set_finish(struct key_set *set)
{
    free(set->cells);
    free(set->marks);
}

/* A row's keys that go to one table. */
static bool
add_row(struct key_set *set, const struct rps_model_table *table,
        const struct rps_row *row)
{
    const uint32_t count = table->bag_starts[table->bags];

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t field = table->fields[i];

        for (uint32_t k = row->offsets[field]; k < row->offsets[field + 1];
                k++) {
            if (!set_add(set, row->keys[k])) {
                return false;
            }
        }
    }
    return true;
}

/* A table's keys in every training row, those of dropped partial batches
 * included. */
static rps_status
collect_keys(struct rps_run *run, const struct rps_model_table *table,
        struct key_set *set)
{
    rps_status status = rps_dataset_rewind(run->data, &run->error);

    for (uint64_t r = 0; r < run->train_rows && status == RPS_OK; r++) {
        struct rps_row row;

        status = rps_dataset_next(run->data, &row, &run->error);
        if (status == RPS_OK && !add_row(set, table, &row)) {
            status = rps_fail(&run->error, RPS_E_NOMEM,
                    "no memory for the keys of the training rows");
        }
    }
    run->data_failed = status != RPS_OK;
    return status;
}

struct array {
    char *path;
    char *bytes;
    struct rps_npy npy;
    const char *values; /* floats; of any alignment */
};

static void
array_finish(struct array *array)
{
    free(array->path);
    free(array->bytes);
    memset(array, 0, sizeof(*array));
}

static rps_status
array_read(struct rps_run *run, const char *name, struct array *array)
{
    size_t length = 0;
    rps_status status;

    memset(array, 0, sizeof(*array));
    array->path =
            rps_format("%s/%s.npy", run->settings->options->init_from, name);
    if (array->path == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory for a path");
    }
    status = rps_file_read(
            array->path, FILE_BYTES_MAX, &array->bytes, &length, &run->error);
    if (status == RPS_OK) {
        status = rps_npy_parse(
                array->bytes, length, length, &array->npy, &run->error);
        if (status != RPS_OK) {
            struct rps_error cause = run->error;

            return rps_fail(&run->error, status, "--init-from: %s: %s",
                    array->path, cause.text);
        }
    }
    if (status != RPS_OK) {
        return status;
    }
    if (strcmp(array->npy.dtype, "<f4") != 0) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "--init-from: %s holds %s; it must be <f4", array->path,
                array->npy.dtype);
    }
    array->values = array->bytes + array->npy.data_offset;
    return RPS_OK;
}

static void
shape_text(uint32_t ndim, const uint64_t *shape, char *out, size_t bytes)
{
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t d = 0; d < ndim && n < bytes; d++) {
        n += (size_t)snprintf(out + n, bytes - n, "%s%llu", d > 0 ? " x " : "",
                (unsigned long long)shape[d]);
    }
}

static rps_status
read_variable(struct rps_run *run, struct rps_variable *variable)
{
    char got[96], want[96];
    struct array array;
    rps_status status = array_read(run, variable->name, &array);

    if (status == RPS_OK &&
            (array.npy.ndim != variable->ndim ||
                    memcmp(array.npy.shape, variable->shape,
                            variable->ndim * sizeof(uint64_t)) != 0)) {
        shape_text(array.npy.ndim, array.npy.shape, got, sizeof(got));
        shape_text(variable->ndim, variable->shape, want, sizeof(want));
        status = rps_fail(&run->error, RPS_E_INVAL,
                "--init-from: %s is %s; the model needs %s", array.path, got,
                want);
    }
    if (status == RPS_OK) {
        memcpy(variable->values, array.values,
                (size_t)variable->elements * sizeof(float));
    }
    array_finish(&array);
    return status;
}

/* Rows on their way to the servers. */
struct assigner {
    struct rps_run *run;
    uint32_t table; /* of the model */
    const struct array *weights;
    struct key_set *set;
    uint8_t *named; /* [rows of weights]: a line named it */
    uint32_t dim;
    uint64_t *keys; /* [ASSIGN_KEYS_MAX] */
    float *rows;    /* [ASSIGN_KEYS_MAX][dim] */
    size_t count;
    uint64_t assigned;
    uint64_t left_out;
};

static rps_status
assigner_flush(struct assigner *assigner)
{
    struct rps_run *run = assigner->run;
    rps_assign assign = {
            .table = run->tables.sparse[assigner->table],
            .keys = assigner->keys,
            .key_count = assigner->count,
            .rows = assigner->rows,
    };
    rps_status status;

    if (assigner->count == 0) {
        return RPS_OK;
    }
    status = rps_assign_rows(run->client, &assign);
    assigner->assigned += assigner->count;
    assigner->count = 0;
    return status == RPS_OK ? RPS_OK
                            : rps_run_client_failed(
                                      run, status, "--init-from: assigning");
}

static rps_status
assigner_add(struct assigner *assigner, uint64_t key, uint64_t row)
{
    uint8_t *mark = set_mark(assigner->set, key);

    if (mark == NULL) {
        assigner->left_out++;
        return RPS_OK;
    }
    if (*mark != 0) {
        return rps_fail(&assigner->run->error, RPS_E_INVAL,
                "its field and token were on an earlier line, too");
    }
    *mark = 1;
    assigner->keys[assigner->count] = key;
    memcpy(assigner->rows + assigner->count * assigner->dim,
            assigner->weights->values + row * assigner->dim * sizeof(float),
            assigner->dim * sizeof(float));
    assigner->count++;
    return assigner->count == ASSIGN_KEYS_MAX ? assigner_flush(assigner)
                                              : RPS_OK;
}

static bool
table_has(const struct rps_model_table *table, uint64_t field)
{
    const uint32_t count = table->bag_starts[table->bags];

    for (uint32_t i = 0; i < count; i++) {
        if (table->fields[i] == field) {
            return true;
        }
    }
    return false;
}

/* "row TAB field TAB token"; the line is cut up. */
static rps_status
assign_line(struct assigner *assigner, char *line)
{
    struct rps_run *run = assigner->run;
    const struct rps_model_table *table = &run->model->tables[assigner->table];
    char *field = strchr(line, '\t');
    char *token = field != NULL ? strchr(field + 1, '\t') : NULL;
    uint64_t row, field_index, key;
    rps_status status;

    if (token == NULL) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "must be row, field and token with tabs between");
    }
    *field++ = '\0';
    *token++ = '\0';
    if (!rps_parse_u64(line, &row) || row >= assigner->weights->npy.shape[0]) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "row %s is not one of %s.weight's %llu", line, table->name,
                (unsigned long long)assigner->weights->npy.shape[0]);
    }
    if (!rps_parse_u64(field, &field_index) ||
            field_index >= run->model->shape.fields) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "field %s is not one of the data's %u", field,
                run->model->shape.fields);
    }
    if (!table_has(table, field_index)) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "field %s does not go to table %s", field, table->name);
    }
    if (assigner->named[row] != 0) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "row %s of %s.weight was on an earlier line, too", line,
                table->name);
    }
    assigner->named[row] = 1;
    status = rps_dataset_key(
            run->data, (uint32_t)field_index, token, &key, &run->error);
    return status == RPS_OK ? assigner_add(assigner, key, row) : status;
}

/* A file that was cut off would leave keys at other start values. */
static rps_status
check_all_named(
        const struct assigner *assigner, const char *path, uint64_t lines)
{
    const uint64_t rows = assigner->weights->npy.shape[0];

    for (uint64_t row = 0; row < rows; row++) {
        if (assigner->named[row] == 0) {
            return rps_fail(&assigner->run->error, RPS_E_INVAL,
                    "--init-from: %s: row %llu of %s.weight's %llu is on "
                    "none of its %llu lines: is the file cut off?",
                    path, (unsigned long long)row,
                    assigner->run->model->tables[assigner->table].name,
                    (unsigned long long)rows, (unsigned long long)lines);
        }
    }
    return RPS_OK;
}

static rps_status
assign_lines(struct assigner *assigner, char *text, const char *path)
{
    struct rps_run *run = assigner->run;
    uint64_t number = 0;
    rps_status status = RPS_OK;

    while (*text != '\0' && status == RPS_OK) {
        size_t length = strcspn(text, "\n");
        char *next = text + length + (text[length] == '\n' ? 1 : 0);

        number++;
        text[length] = '\0';
        if (length > 0 && text[length - 1] == '\r') {
            text[--length] = '\0';
        }
        if (length > 0) {
            status = assign_line(assigner, text);
        }
        text = next;
    }
    if (status == RPS_E_INVAL) {
        struct rps_error cause = run->error;

        return rps_fail(&run->error, status, "--init-from: %s:%llu: %s", path,
                (unsigned long long)number, cause.text);
    }
    if (status == RPS_OK) {
        status = check_all_named(assigner, path, number);
    }
    return status == RPS_OK ? assigner_flush(assigner) : status;
}

/* keys.tsv, or of several tables each its own. */
static char *
keys_path(const struct rps_run *run, uint32_t table)
{
    const char *folder = run->settings->options->init_from;

    return run->model->table_count == 1
                   ? rps_format("%s/keys.tsv", folder)
                   : rps_format("%s/%s.keys.tsv", folder,
                             run->model->tables[table].name);
}

static rps_status
assign_embedding(struct rps_run *run, uint32_t table,
        const struct array *weights, struct key_set *set)
{
    const uint32_t dim = run->model->tables[table].dim;
    struct assigner assigner = {.run = run,
            .table = table,
            .weights = weights,
            .set = set,
            .dim = dim};
    char *path = keys_path(run, table);
    char *text = NULL;
    size_t length;
    rps_status status = RPS_E_NOMEM;

    assigner.keys = calloc(ASSIGN_KEYS_MAX, sizeof(*assigner.keys));
    assigner.rows = calloc((size_t)ASSIGN_KEYS_MAX * dim, sizeof(float));
    assigner.named = calloc((size_t)weights->npy.shape[0] + 1, 1);
    if (path == NULL || assigner.keys == NULL || assigner.rows == NULL ||
            assigner.named == NULL) {
        rps_fail(&run->error, RPS_E_NOMEM, "no memory for start weights");
        goto finish;
    }
    status = rps_file_read(path, FILE_BYTES_MAX, &text, &length, &run->error);
    if (status == RPS_OK) {
        status = assign_lines(&assigner, text, path);
    }
    if (status == RPS_OK) {
        rps_run_say(run,
                "init-from: %s%s%llu keys assigned, %llu left out (they are "
                "in no training row)",
                run->model->table_count > 1 ? run->model->tables[table].name
                                            : "",
                run->model->table_count > 1 ? ": " : "",
                (unsigned long long)assigner.assigned,
                (unsigned long long)assigner.left_out);
    }
finish:
    free(path);
    free(text);
    free(assigner.keys);
    free(assigner.rows);
    free(assigner.named);
    return status;
}

static rps_status
init_embedding(struct rps_run *run, uint32_t t)
{
    const struct rps_model_table *table = &run->model->tables[t];
    char *name = rps_format("%s.weight", table->name);
    struct key_set set = {0};
    struct array weights = {0};
    rps_status status;

    if (name == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory for a path");
    }
    status = array_read(run, name, &weights);
    if (status == RPS_OK &&
            (weights.npy.ndim != 2 || weights.npy.shape[1] != table->dim)) {
        char got[96];

        shape_text(weights.npy.ndim, weights.npy.shape, got, sizeof(got));
        status = rps_fail(&run->error, RPS_E_INVAL,
                "--init-from: %s is %s; the model needs rows x %u",
                weights.path, got, table->dim);
    }
    if (status == RPS_OK) {
        status = collect_keys(run, table, &set);
    }
    if (status == RPS_OK) {
        status = assign_embedding(run, t, &weights, &set);
    }
    free(name);
    set_finish(&set);
    array_finish(&weights);
    return status;
}

static rps_status
init_from(struct rps_run *run)
{
    rps_status status = RPS_OK;

    for (uint32_t v = 0; v < run->model->variable_count && status == RPS_OK;
            v++) {
        status = read_variable(run, &run->model->variables[v]);
    }
    if (status == RPS_OK) {
        status = rps_dense_assign(&run->tables.dense, run->client, &run->error);
    }
    for (uint32_t t = 0; t < run->model->table_count && status == RPS_OK; t++) {
        status = init_embedding(run, t);
    }
    return status;
}

rps_status
rps_run_init_from(struct rps_run *run)
{
    rps_status status;

    if (run->settings->options->init_from[0] == '\0') {
        rps_model_start_values(run->model, run->settings->dense_seed);
        return rps_dense_assign(&run->tables.dense, run->client, &run->error);
    }
    assert(run->settings->model.kind == RPS_MODEL_DLRM);
    status = init_from(run);
    run->data_failed = status != RPS_OK;
    return status;
}
