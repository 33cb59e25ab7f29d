/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a dump: by its manifest, or by names where that is not to be had.
 * Order and occurrences are given here, whoever read it. */
#include "client/precision/read.h"

#include "base/json.h"
#include "base/text.h"
#include "client/precision/clean.h"
#include "client/precision/read_impl.h"

#include <dirent.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBLEMS_MAX 1000u /* more of them are one sentence */

/* --- problems ------------------------------------------------------------ */

bool
rps_dumped_problem(struct rps_dumped *dumped, const char *format, ...)
{
    char **more;
    va_list arguments;
    char *words = NULL;
    int n;

    if (dumped->problem_count > PROBLEMS_MAX) {
        return true;
    }
    more = realloc(dumped->problems,
            ((size_t)dumped->problem_count + 1) * sizeof(*more));
    if (more == NULL) {
        return false;
    }
    dumped->problems = more;
    if (dumped->problem_count == PROBLEMS_MAX) {
        words = rps_format("%s: more than %u files are wrong", dumped->folder,
                PROBLEMS_MAX);
    } else {
        va_start(arguments, format);
        n = vasprintf(&words, format, arguments);
        va_end(arguments);
        words = n < 0 ? NULL : words;
    }
    if (words == NULL) {
        return false;
    }
    for (char *at = words; *at != '\0'; at++) { /* names of strange files */
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
    }
    dumped->problems[dumped->problem_count++] = words;
    return true;
}

/* --- releasing ----------------------------------------------------------- */

static void
free_tensors(struct rps_dumped_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(tensors[i].file);
        free(tensors[i].label);
    }
    free(tensors);
}

void
rps_dumped_drop(struct rps_dumped *dumped)
{
    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        struct rps_dumped_operator *op = &dumped->operators[i];

        free(op->type);
        free(op->name);
        free(op->clean);
        free(op->holds);
        json_decref(op->attributes);
        free_tensors(op->inputs, op->input_count);
        free_tensors(op->outputs, op->output_count);
    }
    free(dumped->operators);
    json_decref(dumped->run);
    dumped->operators = NULL;
    dumped->operator_count = 0;
    dumped->run = NULL;
    dumped->missing = 0;
}

void
rps_dumped_close(struct rps_dumped *dumped)
{
    if (dumped == NULL) {
        return;
    }
    rps_dumped_drop(dumped);
    for (uint32_t i = 0; i < dumped->problem_count; i++) {
        free(dumped->problems[i]);
    }
    free(dumped->problems);
    free(dumped->folder);
    free(dumped->model);
    free(dumped);
}

/* --- order --------------------------------------------------------------- */

static int
by_time(const void *a, const void *b)
{
    const struct rps_dumped_operator *x = a, *y = b;

    if (x->timestamp != y->timestamp) {
        return x->timestamp < y->timestamp ? -1 : 1;
    }
    /* as they were listed */
    return x->occurrence < y->occurrence ? -1 : x->occurrence > y->occurrence;
}

static int
by_name(const void *a, const void *b)
{
    const struct rps_dumped_operator *x =
            *(struct rps_dumped_operator *const *)a;
    const struct rps_dumped_operator *y =
            *(struct rps_dumped_operator *const *)b;
    int order = strcmp(x->type, y->type);

    order = order != 0 ? order : strcmp(x->clean, y->clean);
    return order != 0 ? order : x < y ? -1 : x > y;
}

/* By time; and which of several of one type and name each is. */
static bool
put_in_order(struct rps_dumped *dumped)
{
    const uint32_t count = dumped->operator_count;
    struct rps_dumped_operator **sorted = calloc(count + 1, sizeof(*sorted));

    if (sorted == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        dumped->operators[i].occurrence = i;
    }
    if (count > 0) {
        qsort(dumped->operators, count, sizeof(*dumped->operators), by_time);
    }
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = &dumped->operators[i];
    }
    qsort(sorted, count, sizeof(struct rps_dumped_operator *), by_name);
    for (uint32_t i = 0; i < count; i++) {
        const bool again = i > 0 &&
                           strcmp(sorted[i]->type, sorted[i - 1]->type) == 0 &&
                           strcmp(sorted[i]->clean, sorted[i - 1]->clean) == 0;

        sorted[i]->occurrence = again ? sorted[i - 1]->occurrence + 1 : 0;
    }
    free(sorted);
    return true;
}

/* --- opening ------------------------------------------------------------- */

/* …/{model}/{model_id}/{data_index}: its model and its number. */
static bool
read_path(struct rps_dumped *dumped)
{
    char whole[PATH_MAX];
    char *model_id = NULL;
    uint64_t number = 0;
    uint64_t id;

    if (realpath(dumped->folder, whole) == NULL ||
            !rps_parse_u64(basename(whole), &number)) {
        return true;
    }
    dumped->step = number;
    model_id = dirname(whole);
    if (!rps_parse_u64(basename(model_id), &id)) {
        return true;
    }
    dumped->model = strdup(basename(dirname(model_id)));
    return dumped->model != NULL;
}

static int
by_pointed_text(const void *key, const void *element)
{
    return strcmp(key, *(char *const *)element);
}

/* Files that are there, but no tensor's of the manifest. */
static bool
find_strangers(struct rps_dumped *dumped, const struct rps_dumped_files *files)
{
    bool *known = calloc(files->count + 1, sizeof(*known));
    bool good = known != NULL;

    for (uint32_t i = 0; good && i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        for (uint32_t k = 0; k < op->input_count + op->output_count; k++) {
            const struct rps_dumped_tensor *tensor =
                    k < op->input_count ? &op->inputs[k]
                                        : &op->outputs[k - op->input_count];
            char **found =
                    tensor->file == NULL || files->count == 0
                            ? NULL
                            : bsearch(strrchr(tensor->file, '/') + 1,
                                      files->names, files->count,
                                      sizeof(*files->names), by_pointed_text);

            if (found != NULL) {
                known[found - files->names] = true;
            }
        }
    }
    for (uint32_t i = 0; good && i < files->count; i++) {
        good = known[i] ||
               rps_dumped_problem(dumped, "%s/%s: the manifest has it not",
                       dumped->folder, files->names[i]);
    }
    free(known);
    return good;
}

/* "12.json" */
static bool
is_manifest_name(const char *name)
{
    const size_t digits = strspn(name, "0123456789");

    return digits > 0 && strcmp(name + digits, ".json") == 0;
}

/* Does another step beside it have a manifest? Then it should have, too. */
static bool
is_ours(const char *manifest_path)
{
    const char *slash = strrchr(manifest_path, '/');
    char *beside = slash != NULL ? strndup(manifest_path,
                                           (size_t)(slash + 1 - manifest_path))
                                 : strdup(".");
    DIR *dir = beside != NULL ? opendir(beside) : NULL;
    struct dirent *entry;
    bool found = false;

    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        found = is_manifest_name(entry->d_name);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    free(beside);
    return found;
}

/* True: read by it. False: by names; its status is OK, or what ends us. */
static bool
by_manifest(struct rps_dumped *dumped, const char *path,
        struct rps_error *error, rps_status *status_out)
{
    struct rps_error why = {.text = ""};
    json_t *manifest = NULL;
    rps_status status = rps_dumped_manifest_load(path, &manifest, &why);
    bool good = true;

    if (status == RPS_OK) {
        status = rps_dumped_read_manifest(dumped, path, manifest, &why);
    }
    json_decref(manifest);
    *status_out = RPS_OK;
    if (status == RPS_OK) {
        dumped->has_manifest = true;
        return true;
    }
    if (status == RPS_E_NOMEM) {
        *status_out = rps_fail(error, status, "%s", why.text);
        return false;
    }
    rps_dumped_drop(dumped);
    dumped->complete = true;
    if (status != RPS_E_NOT_FOUND) {
        good = rps_dumped_problem(
                dumped, "%s (its files' names are read instead)", why.text);
    } else if (is_ours(path)) {
        good = rps_dumped_problem(dumped,
                "%s: is missing; the step did not end (its files' names are "
                "read instead)",
                path);
    }
    if (!good) {
        *status_out =
                rps_fail(error, RPS_E_NOMEM, "%s: no memory", dumped->folder);
    }
    return false;
}

static rps_status
read_folder(struct rps_dumped *dumped, const struct rps_dumped_files *files,
        struct rps_error *error)
{
    char *path = rps_dumped_manifest_path(dumped->folder);
    rps_status status = RPS_E_NOMEM;
    bool good = path != NULL && read_path(dumped);

    if (good && by_manifest(dumped, path, error, &status)) {
        good = find_strangers(dumped, files);
        if (good && !dumped->complete) {
            good = rps_dumped_problem(
                    dumped, "%s: says that the step is not whole", path);
        }
    } else if (good && status == RPS_OK) {
        status = rps_dumped_read_names(dumped, files, error);
    }
    free(path);
    if (good && status == RPS_OK) {
        good = put_in_order(dumped);
    }
    return good ? status
                : rps_fail(error, RPS_E_NOMEM, "%s: no memory", dumped->folder);
}

/* Without slashes at its end; "." and ".." by their names, which a manifest
 * has. */
static char *
folder_of(const char *path)
{
    size_t length = strlen(path);
    const char *last;

    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    last = path + length;
    while (last > path && last[-1] != '/') {
        last--;
    }
    if ((size_t)(path + length - last) <= 2 && last[0] == '.') {
        return realpath(path, NULL);
    }
    return strndup(path, length);
}

/* A step of which the manifest alone is there: no operators, and a problem. */
static rps_status
open_lost(
        struct rps_dumped *dumped, const char *folder, struct rps_error *error)
{
    char *path = rps_dumped_manifest_path(folder);
    json_t *manifest = NULL;
    bool good = path != NULL;

    if (good && access(path, F_OK) != 0) {
        free(path);
        return RPS_E_NOT_FOUND; /* error: whoever looked for the folder */
    }
    dumped->complete = true;
    dumped->folder = folder_of(folder);
    good = good && dumped->folder != NULL;
    if (good) {
        if (rps_dumped_manifest_load(path, &manifest, NULL) == RPS_OK) {
            (void)rps_json_whole(
                    json_object_get(manifest, "step"), &dumped->step);
        }
        json_decref(manifest);
        good = rps_dumped_problem(dumped,
                "%s: the step's folder is missing, its manifest is there "
                "(%s)",
                dumped->folder, path);
    }
    free(path);
    return good ? RPS_OK
                : rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
}

rps_status
rps_dumped_open(const char *folder, struct rps_dumped **dumped_out,
        struct rps_error *error)
{
    struct rps_dumped *dumped = calloc(1, sizeof(*dumped));
    struct rps_dumped_files files;
    rps_status status = rps_dumped_files_list(folder, &files, error);

    *dumped_out = NULL;
    if (status == RPS_OK && dumped != NULL) {
        dumped->complete = true;
        dumped->folder = folder_of(folder);
    }
    if (status == RPS_OK) {
        status = dumped == NULL || dumped->folder == NULL
                         ? rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder)
                         : read_folder(dumped, &files, error);
    } else if (status == RPS_E_NOT_FOUND && dumped != NULL) {
        status = open_lost(dumped, folder, error);
    }
    rps_dumped_files_free(&files);
    if (status != RPS_OK) {
        rps_dumped_close(dumped);
        return status;
    }
    *dumped_out = dumped;
    return RPS_OK;
}

char *
rps_dumped_file_name(const struct rps_dumped_operator *op)
{
    char *type = strdup(op->type);
    char *name = NULL;

    if (type != NULL) {
        rps_dump_clean(type);
        name = rps_format("%s.%s", type, op->clean);
    }
    free(type);
    return name;
}

void
rps_dumped_add_shape(
        struct rps_text *text, const struct rps_dumped_tensor *tensor)
{
    rps_text_add(text, "[");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        rps_text_add(text, "%s%" PRIu64, d > 0 ? ", " : "", tensor->shape[d]);
    }
    rps_text_add(text, "]");
}
