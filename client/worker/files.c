/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a PATH means. */
#include "client/worker/lines.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX ((size_t)1 << 20)

static rps_status
add_file(struct rps_file_list *list, const char *path, struct rps_error *error)
{
    char **paths;

    if (list->count == FILES_MAX) {
        return rps_fail(error, RPS_E_LIMIT, "%s: more than %zu files", path,
                (size_t)FILES_MAX);
    }
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count == 0 ? 1 : list->count * 2;

        paths = realloc(list->paths, capacity * sizeof(*paths));
        if (paths == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
        }
        list->paths = paths;
    }
    list->paths[list->count] = strdup(path);
    if (list->paths[list->count] == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    list->count++;
    return RPS_OK;
}

static rps_status
add_folder(
        struct rps_file_list *list, const char *path, struct rps_error *error)
{
    DIR *folder = opendir(path);
    rps_status status = RPS_OK;
    struct dirent *entry;

    if (folder == NULL) {
        return rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(folder)) != NULL) {
        char *name = NULL;
        struct stat stat_of;

        if (entry->d_name[0] == '.') {
            continue;
        }
        if (asprintf(&name, "%s/%s", path, entry->d_name) < 0) {
            status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
            break;
        }
        if (stat(name, &stat_of) != 0) {
            status = rps_fail(error, RPS_E_IO, "%s: %s", name, strerror(errno));
        } else if (!S_ISDIR(stat_of.st_mode)) {
            status = add_file(list, name, error);
        }
        free(name);
    }
    closedir(folder);
    return status;
}

static rps_status
add_glob(struct rps_file_list *list, const char *pattern,
        struct rps_error *error)
{
    glob_t found = {0};
    rps_status status = RPS_OK;
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    size_t i;

    if (code != 0 && code != GLOB_NOMATCH) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot look for files: %s",
                pattern, code == GLOB_NOSPACE ? "no memory" : "read error");
    }
    for (i = 0; status == RPS_OK && i < found.gl_pathc; i++) {
        struct stat stat_of;

        if (stat(found.gl_pathv[i], &stat_of) != 0 ||
                !S_ISDIR(stat_of.st_mode)) {
            status = add_file(list, found.gl_pathv[i], error);
        }
    }
    globfree(&found);
    return status;
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static rps_status
check_files(const struct rps_file_list *list, struct rps_error *error)
{
    size_t i;

    for (i = 0; i < list->count; i++) {
        const char *path = list->paths[i];
        struct stat stat_of;

        if (stat(path, &stat_of) != 0) {
            return rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));
        }
        if (!S_ISREG(stat_of.st_mode)) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: not a regular file (data is read more than once)",
                    path);
        }
        if (stat_of.st_size == 0) {
            return rps_fail(error, RPS_E_INVAL, "%s: the file is empty", path);
        }
    }
    return RPS_OK;
}

rps_status
rps_file_list_find(struct rps_file_list *list, const char *format,
        const char *path, struct rps_error *error)
{
    struct stat stat_of;
    bool is_folder = false;
    rps_status status;

    *list = (struct rps_file_list){0};
    if (path[0] == '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "data %s: no path; write %s:PATH (a file, folder or glob)",
                format, format);
    }
    if (stat(path, &stat_of) != 0) {
        status = add_glob(list, path, error);
    } else if (S_ISDIR(stat_of.st_mode)) {
        is_folder = true;
        status = add_folder(list, path, error);
    } else {
        status = add_file(list, path, error);
    }
    if (status == RPS_OK && list->count == 0) {
        status = rps_fail(error, RPS_E_NOT_FOUND,
                is_folder ? "data %s: the folder %.400s is empty: no file is "
                            "in it (folders and names that begin with a dot "
                            "do not count)"
                          : "data %s: \"%.400s\": no such file, and no file "
                            "matches",
                format, path);
    }
    if (status == RPS_OK) {
        qsort(list->paths, list->count, sizeof(*list->paths), compare_names);
        status = check_files(list, error);
    }
    if (status != RPS_OK) {
        rps_file_list_finish(list);
    }
    return status;
}

void
rps_file_list_finish(struct rps_file_list *list)
{
    size_t i;

    for (i = 0; i < list->count; i++) {
        free(list->paths[i]);
    }
    free(list->paths);
    *list = (struct rps_file_list){0};
}
