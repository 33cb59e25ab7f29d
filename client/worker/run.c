/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/run.h"

#include "base/transport.h"
#include "client/worker/admin_port.h"
#include "client/worker/device.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rps_status
open_dataset(struct rps_run *run, const char *spec, const char *also,
        struct rps_dataset **dataset_out, uint64_t *rows_out)
{
    const struct rps_settings *settings = run->settings;
    struct rps_dataset_options options = {
            .skip_bad_rows = strcmp(settings->options->on_bad_row, "skip") == 0,
            .little_demo = settings->model.kind == RPS_MODEL_LITTLE_DEMO,
            .also = also,
    };
    rps_status status =
            rps_dataset_open(dataset_out, spec, &options, &run->error);

    /* what is wrong with made-up data is its option */
    run->data_failed = status != RPS_OK && strncmp(spec, "synthetic:", 10) != 0;
    if (status == RPS_OK) {
        status = rps_dataset_rows(*dataset_out, rows_out, &run->error);
        run->data_failed = status != RPS_OK;
    }
    return status;
}

static rps_status
check_same_shape(struct rps_run *run)
{
    struct rps_dataset_shape a = rps_dataset_shape_of(run->data);
    struct rps_dataset_shape b = rps_dataset_shape_of(run->eval_data);

    if (a.labels == b.labels && a.dense == b.dense && a.fields == b.fields) {
        return RPS_OK;
    }
    return rps_fail(&run->error, RPS_E_INVAL,
            "--eval-data has %u dense features and %u fields, --data %u and "
            "%u: they must be of one shape",
            b.dense, b.fields, a.dense, a.fields);
}

/* Which rows train and which are test. */
static rps_status
split_rows(struct rps_run *run, uint64_t rows, uint64_t eval_rows)
{
    const struct rps_settings *settings = run->settings;
    const uint64_t train_rows = settings->options->train_rows;

    if (train_rows > rows) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "--train-rows=%llu: the data has %llu rows only",
                (unsigned long long)train_rows, (unsigned long long)rows);
    }
    run->train_rows = train_rows > 0 ? train_rows : rows;
    run->test_first = run->train_rows;
    run->test_end = rows;
    if (run->eval_data != NULL) {
        run->test_first = 0;
        run->test_end = eval_rows;
    } else if (train_rows == 0 && settings->task == RPS_TASK_INFER) {
        run->test_first = 0;
    }
    return RPS_OK;
}

static rps_status
create_model(struct rps_run *run, const struct rps_dataset_shape *data)
{
    const struct rps_model_config *config = &run->settings->model;
    struct rps_model_shape shape = {
            .dense = data->dense,
            .fields = data->fields,
            .bottom = config->bottom,
            .top = config->top,
            .trunk = config->trunk,
            .table_count = run->layout.table_count,
            .tables = run->layout.tables,
    };

    struct rps_error cause;
    rps_status status =
            config->kind == RPS_MODEL_LITTLE_DEMO
                    ? rps_little_demo_create(&run->model, &shape, &run->error)
                    : rps_dlrm_create(&run->model, &shape, &run->error);

    if (status == RPS_E_INVAL && config->is_file) {
        cause = run->error;
        return rps_fail(
                &run->error, status, "%s: %s", config->file, cause.text);
    }
    return status;
}

static rps_status
make_model(struct rps_run *run)
{
    const struct rps_dataset_shape data = rps_dataset_shape_of(run->data);
    rps_status status = rps_layout_init(
            &run->layout, &run->settings->model, data.fields, &run->error);

    if (status == RPS_OK) {
        status = create_model(run, &data);
    }
    if (status == RPS_OK && run->model->labels != data.labels) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "--data has %u labels, the model takes %u", data.labels,
                run->model->labels);
    }
    return status;
}

rps_status
rps_run_open_data(struct rps_run *run)
{
    const char *data = run->settings->options->data;
    const char *eval_data = rps_text_or_null(run->settings->options->eval_data);
    uint64_t rows = 0, eval_rows = 0;
    rps_status status = open_dataset(run, data, eval_data, &run->data, &rows);

    if (status == RPS_OK && eval_data != NULL) {
        status =
                open_dataset(run, eval_data, data, &run->eval_data, &eval_rows);
        if (status == RPS_OK) {
            status = check_same_shape(run);
        }
    }
    if (status == RPS_OK) {
        status = split_rows(run, rows, eval_rows);
    }
    if (status == RPS_OK) {
        status = make_model(run);
    }
    if (status == RPS_OK && run->settings->device.npu) {
        status = rps_device_open(
                &run->device, run->settings, run->model, &run->error);
        run->device_full = status == RPS_E_NOMEM;
    }
    if (run->device != NULL) {
        rps_admin_port_device(run->admin_port, rps_device_usage, run->device);
    }
    return status;
}

void
rps_run_report_line(void *context, const char *line)
{
    rps_run_say(context, "%s", line);
}

rps_status
rps_run_read_stat(struct rps_run *run, uint32_t ps, json_t **stat_out)
{
    char *text = NULL;
    rps_status status = rps_stat(run->client, ps, &text);

    *stat_out = NULL;
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "STAT");
    }
    *stat_out = json_loads(text, 0, NULL);
    free(text);
    return *stat_out != NULL ? RPS_OK
                             : rps_fail(&run->error, RPS_E_CORRUPT,
                                       "the STAT of PS %u is no JSON", ps);
}

/* Has PS 0 a folder for checkpoints? It is a setting of the job. Or does it
 * serve those of one? */
static rps_status
learn_can_save(struct rps_run *run)
{
    json_t *stat;
    rps_status status = rps_run_read_stat(run, 0, &stat);

    run->can_save = json_is_string(json_object_get(stat, "checkpoint_dir"));
    run->is_served = json_is_object(json_object_get(stat, "serving"));
    json_decref(stat);
    return status;
}

/* The newest step in the list of a STAT; 0: it is empty. */
static uint64_t
newest_listed(const json_t *stat)
{
    const json_t *step;
    json_int_t newest = 0;
    size_t i;

    json_array_foreach(json_object_get(stat, "checkpoints"), i, step)
    {
        if (json_integer_value(step) > newest) {
            newest = json_integer_value(step);
        }
    }
    return (uint64_t)newest;
}

/* A new run would save among another's steps, or over them. */
rps_status
rps_run_check_no_checkpoint(struct rps_run *run)
{
    const uint32_t count = run->settings->options->cluster.ps_count;
    rps_status status = RPS_OK;

    for (uint32_t ps = 0; status == RPS_OK && (ps == 0 || ps < count); ps++) {
        json_t *stat;
        uint64_t newest;

        status = rps_run_read_stat(run, ps, &stat);
        newest = newest_listed(stat);
        if (newest > 0) {
            status = rps_fail(&run->error, RPS_E_INVAL,
                    "checkpoint_dir %s already holds checkpoints of an "
                    "earlier run (newest: step %llu): add --restore to go on "
                    "from it, or give another folder",
                    json_string_value(json_object_get(stat, "checkpoint_dir")),
                    (unsigned long long)newest);
        }
        json_decref(stat);
    }
    return status;
}

static rps_status
check_can_save(struct rps_run *run)
{
    const struct rps_settings *settings = run->settings;
    const bool embedded = settings->options->cluster.ps_count == 0;
    const char *where = embedded ? "give --checkpoint-dir"
                                 : "start the servers with --checkpoint-dir";

    if (run->is_served && settings->task != RPS_TASK_INFER) {
        return rps_fail(&run->error, RPS_E_READ_ONLY,
                "PS 0 serves checkpoints for reading alone (recpsd --serve): "
                "--evaluate and --predict may use it, training may not");
    }
    if (run->can_save || run->is_served) {
        return RPS_OK;
    }
    if (settings->options->save_steps > 0) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "--save-steps=%llu: there is no checkpoint_dir to save in; %s",
                (unsigned long long)settings->options->save_steps, where);
    }
    if (settings->restore) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "there is no checkpoint_dir to restore from; %s", where);
    }
    return RPS_OK;
}

/* A server that is lost is not waited for then. */
static int
was_told_to_stop(void *context)
{
    return rps_stop_signal() != 0;
}

void
rps_run_client_options(struct rps_run *run, rps_client_options *client)
{
    const struct rps_options *options = run->settings->options;

    rps_client_options_init(client);
    client->cluster = &options->cluster;
    client->job_id = options->job_id;
    client->job_seed = options->job_seed;
    client->checkpoint_dir = rps_text_or_null(options->checkpoint_dir);
    client->connect_timeout_ms = (uint32_t)(options->connect_timeout * 1e3);
    client->reconnect_timeout_ms = (uint32_t)(options->reconnect_timeout * 1e3);
    client->give_up = was_told_to_stop;
    (void)rps_transport_parse(options->transport, &client->transport);
    client->unix_dir = rps_text_or_null(options->unix_dir);
    client->token_file = rps_text_or_null(options->token_file);
    client->tls_ca = rps_text_or_null(options->tls_ca);
    client->tls_cert = rps_text_or_null(options->tls_cert);
    client->tls_key = rps_text_or_null(options->tls_key);
    client->report = rps_run_report_line;
    client->report_context = run;
    client->known_epoch = run->epoch;
    client->flags = options->client_thread ? RPS_CLIENT_THREAD : 0;
}

const char *
rps_run_waiting_words(const struct rps_run *run)
{
    return run->epoch == 0 ? "recps-train: stopped while it waited: there was "
                             "nothing to save yet\n"
                           : "recps-train: stopped while it waited for what "
                             "was lost: steps since the newest checkpoint "
                             "are not saved\n";
}

rps_status
rps_run_open_client(struct rps_run *run)
{
    rps_client_options client;
    rps_status status;

    rps_run_client_options(run, &client);
    client.checkpoint_read_only = run->settings->task == RPS_TASK_INFER;
    rps_stop_waits(rps_run_waiting_words(run));
    status = rps_client_open(&run->client, &client);
    rps_stop_waits(NULL);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "connecting");
    }
    status = learn_can_save(run);
    if (status == RPS_OK && run->settings->is_chief) {
        status = check_can_save(run);
    }
    if (status == RPS_OK) {
        status = rps_tables_init(&run->tables, run->client, run->model,
                run->settings, &run->error);
    }
    return status;
}

rps_status
rps_run_open_report(struct rps_run *run, uint64_t steps)
{
    const struct rps_options *options = run->settings->options;
    struct rps_report_options report = {
            .json_log = rps_text_or_null(options->json_log),
            .summary_dir = rps_text_or_null(options->summary_dir),
            .log_every = options->log_every,
            .steps_total = steps,
            .quiet = !run->settings->is_chief,
            .loss_bits = options->deterministic,
            .goes_on = run->settings->terms.recover != 0 &&
                       (run->settings->restart_count > 0 ||
                               run->settings->restore_if_any),
    };

    return rps_report_create(&run->report, &report, &run->error);
}

void
rps_run_close(struct rps_run *run)
{
    rps_report_destroy(run->report);
    rps_tables_finish(&run->tables);
    rps_client_close(run->client);
    rps_admin_port_device(run->admin_port, NULL, NULL);
    run->device_full |= run->device != NULL && rps_device_is_full(run->device);
    rps_device_close(run->device);
    rps_model_destroy(run->model);
    rps_layout_finish(&run->layout);
    rps_dataset_close(run->eval_data);
    rps_dataset_close(run->data);
}

rps_status
rps_run_client_failed(struct rps_run *run, rps_status status, const char *what)
{
    return rps_fail(
            &run->error, status, "%s: %s", what, rps_client_error(run->client));
}

void
rps_run_say(struct rps_run *run, const char *format, ...)
{
    char line[RPS_ERROR_BYTES];
    va_list list;

    va_start(list, format);
    vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    if (run->report != NULL && run->settings->is_chief) {
        rps_report_note(run->report, line);
        return;
    }
    printf("%s\n", line);
    fflush(stdout);
}

static void
say_skipped(
        struct rps_run *run, const char *flag, const struct rps_dataset *data)
{
    const uint64_t rows = data != NULL ? rps_dataset_skipped(data) : 0;

    if (rows > 0) {
        rps_run_say(run, "%s: malformed rows that were left out: %llu", flag,
                (unsigned long long)rows);
    }
}

void
rps_run_say_skipped(struct rps_run *run)
{
    say_skipped(run, "--data", run->data);
    say_skipped(run, "--eval-data", run->eval_data);
}

struct rps_dataset *
rps_run_test_data(const struct rps_run *run)
{
    return run->eval_data != NULL ? run->eval_data : run->data;
}
