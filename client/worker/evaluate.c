/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluation and prediction: test rows in their order, looked up READ_ONLY,
 * so that a key that training never saw is zeros.
 */
#include "client/worker/device.h"
#include "client/worker/metrics.h"
#include "client/worker/run.h"
#include "client/worker/stage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rps_status
stage_rows(struct rps_run *run, struct rps_batcher *batcher,
        struct rps_stage *stage)
{
    struct rps_batch batch = {0};
    struct rps_model_input input;
    rps_status status = rps_tables_fetch_dense(&run->tables, &run->error);

    if (status == RPS_OK && run->device != NULL) {
        status = rps_device_take_values(run->device, &run->error);
    }
    while (status == RPS_OK) {
        status = rps_batcher_next(batcher, &batch, &run->error);
        if (status == RPS_E_NOT_FOUND) {
            status = rps_stage_flush(stage, &run->error);
            break;
        }
        run->data_failed = status != RPS_OK;
        if (status == RPS_OK) {
            status =
                    rps_tables_fetch(&run->tables, &batch, &input, &run->error);
        }
        if (status == RPS_OK) {
            status = rps_stage_add(stage, &input, &run->error);
        }
    }
    rps_batch_finish(&batch);
    return status;
}

/* Every test row's probabilities, in order. */
static rps_status
predict_all(struct rps_run *run, struct rps_stage *stage)
{
    const struct rps_batcher_options options = {
            .first_row = run->test_first,
            .end_row = run->test_end,
            .batch_rows = (size_t)run->settings->options->batch_size,
            .replicas = 1,
            .pad_last = true,
    };
    struct rps_batcher *batcher = NULL;
    rps_status status = rps_batcher_create(
            &batcher, rps_run_test_data(run), &options, &run->error);

    if (status == RPS_OK) {
        status = rps_batcher_start(batcher, 0, 0, &run->error);
    }
    run->data_failed = status != RPS_OK;
    if (status == RPS_OK) {
        status = stage_rows(run, batcher, stage);
    }
    rps_batcher_destroy(batcher);
    return status;
}

/* AUC and log loss: the mean over the model's outputs. */
static rps_status
measure(struct rps_run *run, const struct rps_stage *stage,
        struct rps_report_end *result)
{
    const uint32_t labels = run->model->labels;
    float *scores = malloc(stage->count * sizeof(float));
    double auc_sum = 0.0, loss_sum = 0.0;

    if (scores == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory for the AUC");
    }
    result->has_auc = true;
    for (uint32_t o = 0; o < labels; o++) {
        double auc = 0.0;

        for (size_t i = 0; i < stage->count; i++) {
            scores[i] = stage->probabilities[i * labels + o];
        }
        if (!rps_auc(scores, stage->labels + o, labels, stage->count, &auc)) {
            result->has_auc = false;
        }
        auc_sum += auc;
        loss_sum +=
                rps_log_loss(scores, stage->labels + o, labels, stage->count);
    }
    free(scores);
    result->auc = auc_sum / (double)labels;
    result->has_log_loss = true;
    result->log_loss = loss_sum / (double)labels;
    if (!result->has_auc) {
        rps_run_say(run, "auc: none, the test rows are all of one class, or a "
                         "probability is not a number");
    }
    return RPS_OK;
}

/* One line a row: label_0 [TAB label_1]. */
static rps_status
write_predictions(
        struct rps_run *run, const struct rps_stage *stage, const char *path)
{
    const uint32_t labels = run->model->labels;
    FILE *file = fopen(path, "we");
    bool good = file != NULL;

    for (size_t i = 0; good && i < stage->count; i++) {
        for (uint32_t o = 0; good && o < labels; o++) {
            good = fprintf(file, "%.9g%c",
                           (double)stage->probabilities[i * labels + o],
                           o + 1 < labels ? '\t' : '\n') > 0;
        }
    }
    if (file != NULL && fclose(file) != 0) {
        good = false;
    }
    if (!good) {
        return rps_fail(&run->error, RPS_E_IO, "--predict: %s: %s", path,
                strerror(errno));
    }
    rps_run_say(run, "predicted %zu rows into %s", stage->count, path);
    return RPS_OK;
}

rps_status
rps_run_evaluate(struct rps_run *run, const char *predict_path,
        struct rps_report_end *result)
{
    struct rps_stage stage;
    struct rps_stage_engine engine;
    rps_status status;

    if (run->device != NULL) {
        engine = rps_device_stage_engine(run->device);
    }
    status = rps_stage_init(&stage, run->model,
            run->device != NULL ? &engine : NULL, &run->error);

    if (status == RPS_OK) {
        status = predict_all(run, &stage);
    }
    if (status == RPS_OK && predict_path != NULL) {
        status = write_predictions(run, &stage, predict_path);
    }
    if (status == RPS_OK && stage.count == 0) {
        rps_run_say(run, "there is no test row: nothing is evaluated");
    } else if (status == RPS_OK) {
        status = measure(run, &stage, result);
    }
    rps_stage_finish(&stage);
    return status;
}
