/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From any folder of a dump to its steps. A level is known by what is in it:
 * .npy files (a step), numbers that are steps, {YYYYMMDDHHMMSS}s, or one
 * folder.
 */
#include "base/json.h"
#include "base/text.h"
#include "client/precision/read_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEVELS_MAX  12
#define FOLDERS_MAX 100000u /* in one */
#define TIME_DIGITS 14u
#define NAMES_SHOWN 10u

/* What is in a folder. */
struct level {
    char **folders; /* names, sorted */
    uint32_t count;
    bool has_npy;
};

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void
level_finish(struct level *level)
{
    for (uint32_t i = 0; i < level->count; i++) {
        free(level->folders[i]);
    }
    free(level->folders);
    *level = (struct level){.folders = NULL};
}

static rps_status
add_folder(struct level *level, const char *path, const char *name,
        struct rps_error *error)
{
    if (level->count == FOLDERS_MAX) {
        return rps_fail(error, RPS_E_LIMIT, "%s: has more than %u folders",
                path, FOLDERS_MAX);
    }
    if ((level->count & (level->count - 1)) == 0) {
        const size_t room = level->count == 0 ? 1 : 2 * (size_t)level->count;
        char **folders = realloc(level->folders, room * sizeof(*folders));

        if (folders == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
        }
        level->folders = folders;
    }
    level->folders[level->count] = strdup(name);
    if (level->folders[level->count] == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    level->count++;
    return RPS_OK;
}

static bool
is_folder(const char *path, const char *name)
{
    char *whole = rps_format("%s/%s", path, name);
    struct stat info;
    const bool yes =
            whole != NULL && stat(whole, &info) == 0 && S_ISDIR(info.st_mode);

    free(whole);
    return yes;
}

/* "3.json", a manifest without its folder: "3", a step all the same. Whoever
 * opens it is told. */
static bool
is_lost(const char *path, const char *entry, char *name, size_t size)
{
    const size_t length = strlen(entry);
    json_t *manifest = NULL;
    uint64_t number;
    char *whole;
    bool lost = false;

    if (length <= strlen(".json") || length - strlen(".json") >= size ||
            strcmp(entry + length - strlen(".json"), ".json") != 0) {
        return false;
    }
    (void)snprintf(name, size, "%.*s", (int)(length - strlen(".json")), entry);
    if (!rps_parse_u64(name, &number) || is_folder(path, name)) {
        return false;
    }
    whole = rps_format("%s/%s", path, entry);
    lost = whole != NULL &&
           rps_dumped_manifest_load(whole, &manifest, NULL) == RPS_OK &&
           json_object_get(manifest, "recps_dump") != NULL;
    json_decref(manifest);
    free(whole);
    return lost;
}

static rps_status
level_read(struct level *level, const char *path, struct rps_error *error)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char name[32];
    rps_status status = RPS_OK;

    *level = (struct level){.folders = NULL};
    if (dir == NULL) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "cannot open %s: %s", path, strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        if (rps_dumped_is_npy(entry->d_name)) {
            level->has_npy = true;
        } else if (is_folder(path, entry->d_name)) {
            status = add_folder(level, path, entry->d_name, error);
        } else if (is_lost(path, entry->d_name, name, sizeof(name))) {
            status = add_folder(level, path, name, error);
        }
    }
    closedir(dir);
    if (status == RPS_OK && level->count > 1) {
        qsort(level->folders, level->count, sizeof(*level->folders), by_text);
    }
    return status;
}

static bool
has_npy(const char *folder)
{
    struct level level;
    const bool yes =
            level_read(&level, folder, NULL) == RPS_OK && level.has_npy;

    level_finish(&level);
    return yes;
}

static bool
has_manifest(const char *folder)
{
    char *path = rps_dumped_manifest_path(folder);
    const bool yes = path != NULL && access(path, F_OK) == 0;

    free(path);
    return yes;
}

/* --- steps --------------------------------------------------------------- */

struct step {
    char *folder;
    uint64_t number;
};

static int
by_number(const void *a, const void *b)
{
    const struct step *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

/* Of its manifest, else what stands there. */
static void
number_of(const char *folder, uint64_t *number)
{
    char *path = rps_dumped_manifest_path(folder);
    json_t *manifest = NULL;

    if (path != NULL &&
            rps_dumped_manifest_load(path, &manifest, NULL) == RPS_OK) {
        (void)rps_json_whole(json_object_get(manifest, "step"), number);
    }
    json_decref(manifest);
    free(path);
}

static rps_status
no_memory(const char *path, struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
}

/* steps[count] as rps_dumped_steps has them; takes the folders. */
static rps_status
give_steps(struct step *steps, uint32_t count, const char *path,
        struct rps_dumped_steps *out, struct rps_error *error)
{
    out->folders = calloc(count, sizeof(*out->folders));
    out->steps = calloc(count, sizeof(*out->steps));
    if (out->folders == NULL || out->steps == NULL) {
        for (uint32_t i = 0; i < count; i++) {
            free(steps[i].folder);
        }
        return no_memory(path, error);
    }
    qsort(steps, count, sizeof(*steps), by_number);
    for (uint32_t i = 0; i < count; i++) {
        out->folders[i] = steps[i].folder;
        out->steps[i] = steps[i].number;
    }
    out->count = count;
    return RPS_OK;
}

static rps_status
give_one(
        const char *path, struct rps_dumped_steps *out, struct rps_error *error)
{
    struct step step = {.folder = strdup(path)};
    const char *slash = strrchr(path, '/');

    if (step.folder == NULL) {
        return no_memory(path, error);
    }
    (void)rps_parse_u64(slash != NULL ? slash + 1 : path, &step.number);
    number_of(path, &step.number);
    return give_steps(&step, 1, path, out, error);
}

/* The folders that are steps; none: not this level. */
static rps_status
collect_steps(const char *path, const struct level *level,
        struct rps_dumped_steps *out, struct rps_error *error)
{
    struct step *steps = calloc((size_t)level->count + 1, sizeof(*steps));
    uint32_t count = 0;
    rps_status status = RPS_OK;

    if (steps == NULL) {
        return no_memory(path, error);
    }
    for (uint32_t i = 0; i < level->count && status == RPS_OK; i++) {
        struct step *step = &steps[count];

        if (!rps_parse_u64(level->folders[i], &step->number)) {
            continue;
        }
        step->folder = rps_format("%s/%s", path, level->folders[i]);
        if (step->folder == NULL) {
            status = no_memory(path, error);
        } else if (has_manifest(step->folder) || has_npy(step->folder)) {
            number_of(step->folder, &step->number);
            count++;
        } else {
            free(step->folder);
        }
    }
    if (status == RPS_OK && count > 0) {
        status = give_steps(steps, count, path, out, error);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            free(steps[i].folder);
        }
    }
    free(steps);
    return status;
}

/* --- levels -------------------------------------------------------------- */

/* The folder to look into next; NULL: there is none, or it must be chosen.
 * model: that of several; NULL: any. */
static const char *
next_level(const struct level *level, const char *model)
{
    uint32_t times = 0;
    uint64_t number;

    for (uint32_t i = 0; model != NULL && i < level->count; i++) {
        if (strcmp(level->folders[i], model) == 0) {
            return level->folders[i];
        }
    }
    for (uint32_t i = 0; i < level->count; i++) {
        if (strcmp(level->folders[i], "dump") == 0) {
            return level->folders[i];
        }
        times += strlen(level->folders[i]) == TIME_DIGITS &&
                 rps_parse_u64(level->folders[i], &number);
    }
    if (level->count > 0 && times == level->count) {
        return level->folders[level->count - 1];
    }
    return level->count == 1 ? level->folders[0] : NULL;
}

static rps_status
fail_level(const char *asked, const char *path, const struct level *level,
        const char *model, struct rps_error *error)
{
    struct rps_text names = {.bytes = NULL};
    rps_status status;

    if (level->count == 0) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "%s: no dump is under it (%s has no .npy files and no folders)",
                asked, path);
    }
    for (uint32_t i = 0; i < level->count && i < NAMES_SHOWN; i++) {
        rps_text_add(&names, "%s%s", i > 0 ? ", " : "", level->folders[i]);
    }
    if (level->count > NAMES_SHOWN) {
        rps_text_add(&names, ", …");
    }
    if (names.failed) {
        status = no_memory(path, error);
    } else if (model != NULL) {
        status = rps_fail(error, RPS_E_NOT_FOUND,
                "%s has no model %s, but %u other folders: %s", path, model,
                level->count, names.bytes);
    } else {
        status = rps_fail(error, RPS_E_INVAL,
                "%s has %u folders, give one of them: %s", path, level->count,
                names.bytes);
    }
    rps_text_finish(&names);
    return status;
}

static rps_status
descend(const char *asked, char **path, const char *model,
        struct rps_dumped_steps *out, struct rps_error *error)
{
    struct level level;
    rps_status status = RPS_OK;

    for (int depth = 0; depth < LEVELS_MAX; depth++) {
        const char *next = NULL;
        char *deeper = NULL;

        status = level_read(&level, *path, error);
        if (status == RPS_OK) {
            status = level.has_npy || has_manifest(*path)
                             ? give_one(*path, out, error)
                             : collect_steps(*path, &level, out, error);
        }
        if (status == RPS_OK && out->count == 0) {
            next = next_level(&level, model);
            status = next != NULL
                             ? RPS_OK
                             : fail_level(asked, *path, &level, model, error);
        }
        if (next != NULL) {
            deeper = rps_format("%s/%s", *path, next);
            status = deeper != NULL ? RPS_OK : no_memory(*path, error);
            free(*path);
            *path = deeper;
        }
        level_finish(&level);
        if (next == NULL || status != RPS_OK) {
            return status;
        }
    }
    return rps_fail(error, RPS_E_NOT_FOUND,
            "%s: no dump is under it (%d folders deep)", asked, LEVELS_MAX);
}

/* Is a folder of the path called so? */
static bool
has_folder(const char *path, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = path; at != NULL;
            at = strchr(at, '/'), at = at != NULL ? at + 1 : NULL) {
        if (strncmp(at, name, length) == 0 &&
                (at[length] == '/' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

rps_status
rps_dumped_find_model(const char *path, const char *model,
        struct rps_dumped_steps *steps_out, struct rps_error *error)
{
    size_t length = strlen(path);
    char *at;
    rps_status status;

    *steps_out = (struct rps_dumped_steps){.folders = NULL};
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    at = strndup(path, length);
    if (at == NULL) {
        return no_memory(path, error);
    }
    status = descend(path, &at, model, steps_out, error);
    if (status == RPS_OK && model != NULL && !has_folder(at, model)) {
        status = rps_fail(error, RPS_E_NOT_FOUND,
                "%s: has no dump of a model %s: what there is is %s", path,
                model, at);
    }
    free(at);
    return status;
}

rps_status
rps_dumped_find(const char *path, struct rps_dumped_steps *steps_out,
        struct rps_error *error)
{
    return rps_dumped_find_model(path, NULL, steps_out, error);
}

void
rps_dumped_steps_free(struct rps_dumped_steps *steps)
{
    for (uint32_t i = 0; i < steps->count; i++) {
        free(steps->folders[i]);
    }
    free(steps->folders);
    free(steps->steps);
    *steps = (struct rps_dumped_steps){.folders = NULL};
}
