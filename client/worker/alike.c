/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/alike.h"

#include "base/checksum.h"
#include "base/json.h"
#include "base/text.h"

#include <recps/alike.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of files of as many rows these tell those apart that are not the same. */
#define SAMPLE_ROWS 64u

/* A digest of what is added, in order. */
static void
mix(uint64_t *digest, const void *bytes, size_t length)
{
    uint64_t both[2] = {*digest, rps_checksum(bytes, length)};

    *digest = rps_checksum(both, sizeof(both));
}

static void
mix_row(uint64_t *digest, const struct rps_dataset_shape *shape,
        const struct rps_row *row)
{
    mix(digest, row->labels, shape->labels * sizeof(*row->labels));
    mix(digest, row->dense, shape->dense * sizeof(*row->dense));
    mix(digest, row->offsets, (shape->fields + 1) * sizeof(*row->offsets));
    mix(digest, row->keys, row->offsets[shape->fields] * sizeof(*row->keys));
}

/* Paths may differ from host to host: what the files hold is compared. */
static char *
data_words(struct rps_run *run, rps_status *status)
{
    const struct rps_dataset_shape shape = rps_dataset_shape_of(run->data);
    uint64_t digest = 0;
    uint64_t rows = 0;
    struct rps_row row;

    *status = rps_dataset_rows(run->data, &rows, &run->error);
    if (*status == RPS_OK) {
        *status = rps_dataset_rewind(run->data, &run->error);
    }
    for (uint64_t i = 0; *status == RPS_OK && i < rows && i < SAMPLE_ROWS;
            i++) {
        *status = rps_dataset_next(run->data, &row, &run->error);
        if (*status == RPS_OK) {
            mix_row(&digest, &shape, &row);
        }
    }
    run->data_failed = *status != RPS_OK;
    return rps_format("%" PRIu64 " rows of %u dense features and %u fields "
                      "(the first ones' digest is %016" PRIx64 ")",
            rows, shape.dense, shape.fields, digest);
}

static void
mix_table(uint64_t *digest, const struct rps_model_table *table)
{
    const uint32_t shape[3] = {
            table->dim, (uint32_t)table->pooling, table->bags};

    mix(digest, table->name, strlen(table->name));
    mix(digest, shape, sizeof(shape));
    mix(digest, table->bag_starts,
            (table->bags + 1) * sizeof(*table->bag_starts));
    mix(digest, table->fields,
            table->bag_starts[table->bags] * sizeof(*table->fields));
}

/* Layers, tables, and which fields go where. How a table is made and moved its
 * opening compares. */
static char *
model_words(const struct rps_run *run)
{
    const struct rps_model *model = run->model;
    uint64_t elements = 0;
    uint64_t digest = 0;

    for (uint32_t t = 0; t < model->table_count; t++) {
        mix_table(&digest, &model->tables[t]);
    }
    for (uint32_t v = 0; v < model->variable_count; v++) {
        const struct rps_variable *variable = &model->variables[v];

        mix(&digest, variable->name, strlen(variable->name));
        mix(&digest, variable->shape, sizeof(variable->shape));
        elements += variable->elements;
    }
    return rps_format("%s of %u tables and %" PRIu64
                      " dense elements (digest %016" PRIx64 ")",
            run->settings->model.kind == RPS_MODEL_LITTLE_DEMO ? "little_demo"
                                                               : "dlrm",
            model->table_count, elements, digest);
}

/* Schedules by what they give at the steps that tell them apart. */
static char *
rate_words(const struct rps_run *run)
{
    const struct rps_settings *settings = run->settings;
    const uint32_t count = run->model->table_count;
    struct rps_rates first = rps_settings_rates(settings, 0);
    uint64_t digest = 0;

    for (uint64_t step = 0; step <= 1000000; step = step * 5 / 4 + 1) {
        const struct rps_rates rates = rps_settings_rates(settings, step);

        mix(&digest, rates.sparse, count * sizeof(*rates.sparse));
        mix(&digest, &rates.dense, sizeof(rates.dense));
    }
    return rps_format("%.9g for the first table and %.9g for dense variables "
                      "at step 1 (digest of the schedules %016" PRIx64 ")",
            first.sparse[0], first.dense, digest);
}

/* Takes the words; NULL: no memory. */
static bool
put(json_t *object, const char *field, char *words)
{
    const bool good = words != NULL && json_object_set_new(object, field,
                                               json_string(words)) == 0;

    free(words);
    return good;
}

static bool
put_number(json_t *object, const char *field, uint64_t number)
{
    return put(object, field, rps_format("%" PRIu64, number));
}

rps_status
rps_run_say_alike(struct rps_run *run)
{
    const struct rps_options *options = run->settings->options;
    json_t *object = json_object();
    char *text = NULL;
    rps_status status = RPS_OK;
    bool good = put(object, "--data", data_words(run, &status)) &&
                put_number(object, "--train-rows", run->train_rows) &&
                put_number(object, "--batch-size", options->batch_size) &&
                put_number(object, "--seed", options->seed) &&
                put_number(object, "--shuffle", options->shuffle) &&
                put(object, "--dense", rps_format("%s", options->dense)) &&
                put(object, "model", model_words(run)) &&
                put(object, "learning rate", rate_words(run));

    text = rps_json_text(object);
    if (status == RPS_OK && (!good || text == NULL)) {
        status = rps_fail(&run->error, RPS_E_NOMEM, "no memory to join");
    }
    if (status == RPS_OK) {
        status = rps_job_alike(run->client, text);
        if (status != RPS_OK) {
            status = rps_run_client_failed(run, status, "joining the job");
        }
    }
    free(text);
    return status;
}
