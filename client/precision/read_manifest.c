/* SPDX-License-Identifier: Apache-2.0 */
/* A step's manifest. Whoever wrote it is not trusted: names of files stay in
 * their folder, shapes have their limits. */
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/precision/clean.h"
#include "client/precision/read_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 1

/* What is read now; for words. */
struct reading {
    struct rps_dumped *dumped;
    const char *path;
    uint64_t at; /* the operator, from 0 */
    struct rps_error *error;
};

static rps_status
damaged(const struct reading *reading, const char *what)
{
    return rps_fail(reading->error, RPS_E_CORRUPT,
            "%s: operator %" PRIu64 ": %s", reading->path, reading->at, what);
}

static rps_status
no_memory(const struct reading *reading)
{
    return rps_fail(
            reading->error, RPS_E_NOMEM, "%s: no memory", reading->path);
}

char *
rps_dumped_manifest_path(const char *folder)
{
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/') {
        length--;
    }
    return rps_format("%.*s.json", (int)length, folder);
}

rps_status
rps_dumped_manifest_load(
        const char *path, json_t **manifest_out, struct rps_error *error)
{
    json_error_t why;
    char *bytes = NULL;
    size_t length = 0;
    const json_t *version;
    rps_status status = rps_file_read(
            path, RPS_DUMPED_MANIFEST_BYTES, &bytes, &length, error);

    *manifest_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    *manifest_out = json_loadb(bytes, length, 0, &why);
    free(bytes);
    if (*manifest_out == NULL) {
        return rps_fail(error, RPS_E_CORRUPT, "%s: line %d: %s", path, why.line,
                why.text);
    }
    version = json_object_get(*manifest_out, "recps_dump");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION) {
        json_decref(*manifest_out);
        *manifest_out = NULL;
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: is no manifest of a dump (\"recps_dump\": %d)", path,
                VERSION);
    }
    return RPS_OK;
}

/* Another form, null, absent, or what must not be printed: NULL. */
static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL && rps_dumped_is_plain(text) ? text : NULL;
}

static rps_status
read_numbers(const struct reading *reading, const json_t *list, uint64_t *out,
        uint32_t *count_out)
{
    const size_t count = json_array_size(list);

    if (!json_is_array(list) || count > RPS_DUMP_DIMS_MAX) {
        return damaged(reading, "a shape or strides are no list of up to "
                                "4 numbers");
    }
    for (size_t i = 0; i < count; i++) {
        if (!rps_json_whole(json_array_get(list, i), &out[i])) {
            return damaged(reading, "a shape has something else than numbers");
        }
    }
    *count_out = (uint32_t)count;
    return RPS_OK;
}

static rps_status
read_file(const struct reading *reading, const char *file,
        struct rps_dumped_tensor *tensor)
{
    struct rps_dumped_name name;

    if (!rps_dumped_name_parse(file, &name)) {
        return damaged(reading, "a \"file\" is no name of a dump's file");
    }
    tensor->timestamp = name.timestamp;
    tensor->index = name.index;
    tensor->file = rps_format("%s/%s", reading->dumped->folder, file);
    if (tensor->file == NULL) {
        return no_memory(reading);
    }
    if (access(tensor->file, F_OK) != 0) {
        reading->dumped->missing++;
    }
    return RPS_OK;
}

static rps_status
read_place(const struct reading *reading, const json_t *value,
        struct rps_dumped_tensor *tensor)
{
    const char *text = json_string_value(value);

    if (value == NULL || json_is_null(value)) {
        return RPS_OK;
    }
    if (text == NULL ||
            !rps_parse_hex64(strncmp(text, "0x", 2) == 0 ? text + 2 : text,
                    &tensor->place)) {
        return damaged(reading, "a \"place\" is no hexadecimal number");
    }
    return RPS_OK;
}

static rps_status
read_tensor(const struct reading *reading, const json_t *value, uint32_t index,
        struct rps_dumped_tensor *tensor)
{
    const char *file = text_of(value, "file");
    const char *label = text_of(value, "label");
    const char *dtype = text_of(value, "dtype");
    const json_t *strides = json_object_get(value, "strides");
    uint32_t stride_count = 0;
    rps_status status;

    tensor->index = index;
    tensor->shape_known = true;
    if (dtype == NULL || !rps_dump_dtype_parse(dtype, &tensor->dtype)) {
        return damaged(reading, "a tensor's \"dtype\" is not known");
    }
    status = read_numbers(reading, json_object_get(value, "shape"),
            tensor->shape, &tensor->ndim);
    if (status == RPS_OK && strides != NULL && !json_is_null(strides)) {
        status = read_numbers(reading, strides, tensor->strides, &stride_count);
        if (status == RPS_OK && stride_count != tensor->ndim) {
            return damaged(reading, "shape and strides differ in length");
        }
    }
    if (status == RPS_OK) {
        status = read_place(reading, json_object_get(value, "place"), tensor);
    }
    if (status == RPS_OK && label != NULL &&
            (tensor->label = strdup(label)) == NULL) {
        return no_memory(reading);
    }
    return status == RPS_OK && file != NULL ? read_file(reading, file, tensor)
                                            : status;
}

static rps_status
read_tensors(const struct reading *reading, const json_t *list,
        struct rps_dumped_tensor **tensors_out, uint32_t *count_out)
{
    const size_t count = json_array_size(list);
    rps_status status = RPS_OK;

    if (!json_is_array(list) || count > RPS_DUMPED_FILES_MAX) {
        return damaged(reading, "\"inputs\" or \"outputs\" is no list");
    }
    if (count > 0) {
        *tensors_out = calloc(count, sizeof(**tensors_out));
        if (*tensors_out == NULL) {
            return no_memory(reading);
        }
    }
    *count_out = (uint32_t)count;
    for (uint32_t i = 0; i < count && status == RPS_OK; i++) {
        status = read_tensor(
                reading, json_array_get(list, i), i, &(*tensors_out)[i]);
    }
    return status;
}

/* Its first file's; 0: it has none. */
static uint64_t
first_timestamp(const struct rps_dumped_operator *op)
{
    uint64_t first = 0;

    for (uint32_t i = 0; i < op->input_count + op->output_count; i++) {
        const struct rps_dumped_tensor *tensor =
                i < op->input_count ? &op->inputs[i]
                                    : &op->outputs[i - op->input_count];

        if (tensor->file != NULL && (first == 0 || tensor->timestamp < first)) {
            first = tensor->timestamp;
        }
    }
    return first;
}

static rps_status
read_operator(const struct reading *reading, const json_t *value,
        struct rps_dumped_operator *op)
{
    const char *type = text_of(value, "type");
    const char *name = text_of(value, "name");
    const char *holds = text_of(value, "holds");
    json_t *attributes = json_object_get(value, "attributes");
    rps_status status;

    if (type == NULL || name == NULL || type[0] == '\0') {
        return damaged(reading, "it has no \"type\" or no \"name\"");
    }
    op->type = strdup(type);
    op->name = strdup(name);
    op->clean = strdup(name);
    op->holds = holds != NULL ? strdup(holds) : NULL;
    if (op->type == NULL || op->name == NULL || op->clean == NULL ||
            (holds != NULL && op->holds == NULL)) {
        return no_memory(reading);
    }
    rps_dump_clean(op->clean);
    op->attributes =
            json_is_object(attributes) ? json_incref(attributes) : NULL;
    if (!rps_json_whole(json_object_get(value, "task"), &op->task) ||
            !rps_json_whole(json_object_get(value, "stream"), &op->stream)) {
        return damaged(reading, "\"task\" or \"stream\" is no number");
    }
    status = read_tensors(reading, json_object_get(value, "inputs"),
            &op->inputs, &op->input_count);
    if (status == RPS_OK) {
        status = read_tensors(reading, json_object_get(value, "outputs"),
                &op->outputs, &op->output_count);
    }
    op->timestamp = first_timestamp(op);
    return status;
}

rps_status
rps_dumped_read_manifest(struct rps_dumped *dumped, const char *path,
        const json_t *manifest, struct rps_error *error)
{
    struct reading reading = {.dumped = dumped, .path = path, .error = error};
    const json_t *list = json_object_get(manifest, "operators");
    const size_t count = json_array_size(list);
    json_t *run = json_object_get(manifest, "run");
    uint64_t before = 0;
    rps_status status = RPS_OK;

    assert(dumped->operators == NULL);
    if (!json_is_array(list) || count > RPS_DUMPED_FILES_MAX ||
            !rps_json_whole(json_object_get(manifest, "step"), &dumped->step)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: \"operators\" is no list, or \"step\" no number", path);
    }
    dumped->complete = json_is_true(json_object_get(manifest, "complete"));
    dumped->run = json_is_object(run) ? json_incref(run) : NULL;
    dumped->operators = calloc(count + 1, sizeof(*dumped->operators));
    if (dumped->operators == NULL) {
        return no_memory(&reading);
    }
    dumped->operator_count = (uint32_t)count;
    for (; reading.at < count && status == RPS_OK; reading.at++) {
        struct rps_dumped_operator *op = &dumped->operators[reading.at];

        status = read_operator(&reading, json_array_get(list, reading.at), op);
        if (op->timestamp == 0) { /* no file: it ran when its list says */
            op->timestamp = before;
        }
        before = op->timestamp;
    }
    return status;
}
