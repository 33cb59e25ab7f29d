/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/position.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

char *
rps_position_text(const struct rps_position *position)
{
    json_t *object = json_pack("{s:I, s:I, s:s, s:I, s:I, s:I, s:o}", "epoch",
            (json_int_t)position->epoch, "batch", (json_int_t)position->batch,
            "data", position->data, "train_rows",
            (json_int_t)position->train_rows, "global_batch",
            (json_int_t)position->global_batch, "shuffle",
            (json_int_t)position->shuffle, "seed",
            json_sprintf("%llu", (unsigned long long)position->seed));
    char *text = NULL;

    if (object != NULL) {
        text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
        json_decref(object);
    }
    return text;
}

static bool
count_of(const json_t *object, const char *name, uint64_t *out)
{
    return rps_json_count(json_object_get(object, name), out);
}

rps_status
rps_position_read(const char *text, struct rps_position *position,
        char **data_out, struct rps_error *error)
{
    json_t *object = json_loads(text, 0, NULL);
    const char *data = json_string_value(json_object_get(object, "data"));
    const char *seed = json_string_value(json_object_get(object, "seed"));
    bool good;

    *data_out = NULL;
    memset(position, 0, sizeof(*position));
    good = data != NULL && seed != NULL &&
           count_of(object, "epoch", &position->epoch) &&
           count_of(object, "batch", &position->batch) &&
           count_of(object, "train_rows", &position->train_rows) &&
           count_of(object, "global_batch", &position->global_batch) &&
           count_of(object, "shuffle", &position->shuffle);
    if (good) {
        position->seed = strtoull(seed, NULL, 10);
        *data_out = strdup(data);
        position->data = *data_out;
    }
    json_decref(object);
    if (!good) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the checkpoint's data position is not recps-train's: %.200s",
                text);
    }
    return *data_out != NULL ? RPS_OK
                             : rps_fail(error, RPS_E_NOMEM,
                                       "no memory for the data position");
}

bool
rps_position_recount(const struct rps_position *saved, struct rps_position *now,
        const char **what_out)
{
    const uint64_t batches = now->train_rows / now->global_batch;

    *what_out = NULL;
    if (strcmp(saved->data, now->data) != 0) {
        *what_out = "--data";
    } else if (saved->train_rows != now->train_rows) {
        *what_out = "the number of training rows";
    } else if (saved->global_batch != now->global_batch) {
        *what_out = "the global batch (--batch-size times replicas)";
    } else if (saved->shuffle != now->shuffle) {
        *what_out = "--shuffle";
    } else if (saved->seed != now->seed) {
        *what_out = "--seed";
    }
    now->epoch = saved->epoch;
    now->batch = saved->batch;
    if (saved->global_batch != now->global_batch) {
        /* rows of an epoch fit 64 bits; more were never there */
        now->batch = saved->global_batch == 0 ||
                                     saved->batch > saved->train_rows /
                                                            saved->global_batch
                             ? batches
                             : saved->batch * saved->global_batch /
                                       now->global_batch;
    }
    if (now->batch >= batches) {
        now->epoch += 1;
        now->batch = 0;
    }
    return *what_out != NULL;
}
