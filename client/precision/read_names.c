/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of .npy files without a manifest: another framework's, or what is
 * left of a step that did not end. Files of one type, name, task and stream
 * are an operator's; where one comes twice, it ran twice.
 */
#include "base/text.h"
#include "client/precision/read_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSORS_MAX 4096u /* inputs, or outputs, of an operator */

/* A file with its name taken apart. */
struct part {
    const char *file;
    struct rps_dumped_name name;
};

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int
compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int
by_owner(const struct part *a, const struct part *b)
{
    int order = strcmp(a->name.type, b->name.type);

    order = order != 0 ? order : strcmp(a->name.name, b->name.name);
    order = order != 0 ? order : compare_u64(a->name.task, b->name.task);
    return order != 0 ? order : compare_u64(a->name.stream, b->name.stream);
}

static int
by_owner_and_time(const void *a, const void *b)
{
    const struct part *x = *(struct part *const *)a;
    const struct part *y = *(struct part *const *)b;
    int order = by_owner(x, y);

    order = order != 0 ? order
                       : compare_u64(x->name.timestamp, y->name.timestamp);
    return order != 0 ? order : strcmp(x->file, y->file);
}

static int
by_index(const void *a, const void *b)
{
    const struct rps_dumped_tensor *x = a, *y = b;

    return compare_u64(x->index, y->index);
}

/* --- the folder's files -------------------------------------------------- */

static rps_status
add_file(struct rps_dumped_files *files, const char *folder, const char *name,
        struct rps_error *error)
{
    if (files->count == RPS_DUMPED_FILES_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "%s: has more than %u files, which is the most of a step",
                folder, RPS_DUMPED_FILES_MAX);
    }
    if ((files->count & (files->count - 1)) == 0) { /* 0, 1, 2, 4, … */
        const size_t room = files->count == 0 ? 1 : 2 * (size_t)files->count;
        char **names = realloc(files->names, room * sizeof(*names));

        if (names == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
        }
        files->names = names;
    }
    files->names[files->count] = strdup(name);
    if (files->names[files->count] == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
    }
    files->count++;
    return RPS_OK;
}

rps_status
rps_dumped_files_list(const char *folder, struct rps_dumped_files *files,
        struct rps_error *error)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    rps_status status = RPS_OK;

    *files = (struct rps_dumped_files){.names = NULL};
    if (dir == NULL) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "cannot open %s: %s", folder, strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' && rps_dumped_is_npy(entry->d_name)) {
            status = add_file(files, folder, entry->d_name, error);
        }
    }
    closedir(dir);
    if (status != RPS_OK) {
        rps_dumped_files_free(files);
    } else if (files->count > 1) {
        qsort(files->names, files->count, sizeof(*files->names), by_text);
    }
    return status;
}

void
rps_dumped_files_free(struct rps_dumped_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        free(files->names[i]);
    }
    free(files->names);
    *files = (struct rps_dumped_files){.names = NULL};
}

/* --- operators ----------------------------------------------------------- */

/* Shape and dtype of a file; what is wrong is told by who loads it. */
static void
look_at(struct rps_dumped_tensor *tensor)
{
    struct rps_npy npy;
    int fd = -1;

    if (rps_dumped_head(tensor->file, &npy, &tensor->dtype, &fd, NULL) ==
            RPS_OK) {
        tensor->ndim = npy.ndim;
        memcpy(tensor->shape, npy.shape, npy.ndim * sizeof(npy.shape[0]));
        tensor->shape_known = true;
        close(fd);
    }
}

static bool
add_tensor(struct rps_dumped_tensor **tensors, uint32_t *count,
        const char *folder, const struct part *part)
{
    struct rps_dumped_tensor *more =
            realloc(*tensors, (*count + 1) * sizeof(*more));

    if (more == NULL) {
        return false;
    }
    *tensors = more;
    more[*count] = (struct rps_dumped_tensor){
            .file = rps_format("%s/%s", folder, part->file),
            .timestamp = part->name.timestamp,
            .index = part->name.index};
    if (more[*count].file == NULL) {
        return false;
    }
    look_at(&more[(*count)++]);
    return true;
}

static bool
has_index(
        const struct rps_dumped_tensor *tensors, uint32_t count, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].index == index) {
            return true;
        }
    }
    return false;
}

/* Does this part begin another run of the operator? */
static bool
begins_another(const struct rps_dumped_operator *op, const struct part *part)
{
    const uint32_t count =
            part->name.is_output ? op->output_count : op->input_count;

    return count == TENSORS_MAX ||
           has_index(part->name.is_output ? op->outputs : op->inputs, count,
                   part->name.index);
}

static bool
begin_operator(struct rps_dumped_operator *op, const struct part *part)
{
    op->type = strdup(part->name.type);
    op->name = strdup(part->name.name);
    op->clean = strdup(part->name.name);
    op->task = part->name.task;
    op->stream = part->name.stream;
    op->timestamp = part->name.timestamp;
    return op->type != NULL && op->name != NULL && op->clean != NULL;
}

static bool
gather(struct rps_dumped *dumped, struct part *const *parts, uint32_t count)
{
    struct rps_dumped_operator *op = NULL;

    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = parts[i];
        bool good = true;

        if (op == NULL || by_owner(parts[i - 1], part) != 0 ||
                begins_another(op, part)) {
            op = &dumped->operators[dumped->operator_count++];
            good = begin_operator(op, part);
        }
        good = good &&
               (part->name.is_output
                               ? add_tensor(&op->outputs, &op->output_count,
                                         dumped->folder, part)
                               : add_tensor(&op->inputs, &op->input_count,
                                         dumped->folder, part));
        if (!good) {
            return false;
        }
    }
    return true;
}

static void
sort_tensors(struct rps_dumped *dumped)
{
    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        struct rps_dumped_operator *op = &dumped->operators[i];

        if (op->input_count > 1) {
            qsort(op->inputs, op->input_count, sizeof(*op->inputs), by_index);
        }
        if (op->output_count > 1) {
            qsort(op->outputs, op->output_count, sizeof(*op->outputs),
                    by_index);
        }
    }
}

/* [files->count] places for parts, those that have a name of a dump's file. */
static bool
take_apart(struct rps_dumped *dumped, const struct rps_dumped_files *files,
        struct part **parts, uint32_t *count)
{
    for (uint32_t i = 0; i < files->count; i++) {
        struct part *part = malloc(sizeof(*part));

        if (part == NULL) {
            return false;
        }
        part->file = files->names[i];
        if (rps_dumped_name_parse(part->file, &part->name)) {
            parts[(*count)++] = part;
            continue;
        }
        free(part);
        if (!rps_dumped_problem(dumped,
                    "%s/%s: is not named "
                    "type.name.task.stream.timestamp.input|output.i.npy",
                    dumped->folder, files->names[i])) {
            return false;
        }
    }
    return true;
}

rps_status
rps_dumped_read_names(struct rps_dumped *dumped,
        const struct rps_dumped_files *files, struct rps_error *error)
{
    struct part **parts = calloc(files->count + 1, sizeof(*parts));
    uint32_t count = 0;
    bool good;

    dumped->operators = calloc(files->count + 1, sizeof(*dumped->operators));
    good = parts != NULL && dumped->operators != NULL &&
           take_apart(dumped, files, parts, &count);
    if (good) {
        qsort(parts, count, sizeof(*parts), by_owner_and_time);
        good = gather(dumped, parts, count);
        sort_tensors(dumped);
    }
    for (uint32_t i = 0; i < count; i++) {
        free(parts[i]);
    }
    free(parts);
    return good ? RPS_OK
                : rps_fail(error, RPS_E_NOMEM, "%s: no memory", dumped->folder);
}
