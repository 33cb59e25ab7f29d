/* SPDX-License-Identifier: Apache-2.0 */
/* Our programs stand beside this one; in a build tree, in their folders. */
#include "client/cli/launch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of this executable; false: unknown. */
static bool
own_folder(char folder[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char *slash;

    if (n <= 0) {
        return false;
    }
    folder[n] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* A program below `folder`, by its real path, owned; NULL: not there. */
static char *
program_at(const char *folder, const char *relative)
{
    char *path = rps_format("%s/%s", folder, relative);
    char *real = NULL;

    if (path != NULL && access(path, X_OK) == 0) {
        real = realpath(path, NULL);
    }
    free(path);
    return real;
}

char *
rps_launch_find_server(void)
{
    char folder[PATH_MAX];
    char *path = NULL;

    if (own_folder(folder)) {
        path = program_at(folder, "recpsd");
        if (path == NULL) {
            path = program_at(folder, "../../server/daemon/recpsd");
        }
    }
    return path != NULL ? path : strdup("recpsd");
}

static void
prepend(const char *folder)
{
    const char *old = getenv("PATH");
    char *path = old != NULL ? rps_format("%s:%s", folder, old)
                             : rps_format("%s", folder);

    if (path != NULL) {
        setenv("PATH", path, 1);
    }
    free(path);
}

static void
prepend_folder_of(char *program)
{
    char *slash = program != NULL ? strrchr(program, '/') : NULL;

    if (slash != NULL) {
        *slash = '\0';
        prepend(program);
    }
    free(program);
}

void
rps_launch_extend_path(void)
{
    char folder[PATH_MAX];

    if (!own_folder(folder)) {
        return;
    }
    prepend_folder_of(program_at(folder, "../../server/daemon/recpsd"));
    prepend_folder_of(program_at(folder, "../worker/recps-train"));
    prepend(folder);
}
