/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include "base/text.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* cgroup v1 says "no limit" with a huge number of pages. */
#define V1_NO_LIMIT ((uint64_t)1 << 62)

static uint64_t
count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;

    if (folder == NULL) {
        return 0;
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL;
            entry = readdir(folder)) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count > 0 ? count - 1 : 0; /* without the folder itself */
}

/* Fields of /proc/self/stat behind the name, which may hold anything. */
static void
read_stat(struct rps_process *process)
{
    char line[1024] = "";
    const double tick = (double)sysconf(_SC_CLK_TCK);
    FILE *file = fopen("/proc/self/stat", "re");
    uint64_t user = 0, system = 0, started = 0;
    const char *rest;

    if (file == NULL) {
        return;
    }
    rest = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    if (rest == NULL ||
            sscanf(rest + 1,
                    " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64
                    " %" SCNu64 " %*d %*d %*d %*d %" SCNu64 " %*d %" SCNu64
                    " %" SCNu64,
                    &user, &system, &process->threads, &started,
                    &process->virtual_bytes) != 5) {
        return;
    }
    process->cpu_seconds = (double)(user + system) / tick;
    process->start_unix_s = (double)started / tick;
}

/* Boot time, to which the start is relative. */
static double
boot_unix_s(void)
{
    char line[256];
    uint64_t seconds = 0;
    FILE *file = fopen("/proc/stat", "re");

    while (file != NULL && seconds == 0 &&
            fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "btime %" SCNu64, &seconds);
    }
    if (file != NULL) {
        fclose(file);
    }
    return (double)seconds;
}

uint64_t
rps_process_resident(void)
{
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%*u %" SCNu64, &pages) != 1) {
        pages = 0;
    }
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void
rps_process_read(struct rps_process *process)
{
    struct rlimit limit;

    *process = (struct rps_process){.threads = 0};
    read_stat(process);
    process->start_unix_s += boot_unix_s();
    process->resident_bytes = rps_process_resident();
    process->open_files = count_files();
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
            limit.rlim_cur != RLIM_INFINITY) {
        process->files_max = limit.rlim_cur;
    }
}

/* A number in a file; 0: "max", or not there. */
static uint64_t
number_in(const char *root, const char *path, const char *name)
{
    char whole[PATH_MAX];
    char line[64] = "";
    uint64_t value = 0;
    FILE *file;

    if (snprintf(whole, sizeof(whole), "%s%s/%s", root, path, name) >=
            (int)sizeof(whole)) {
        return 0;
    }
    file = fopen(whole, "re");
    if (file == NULL) {
        return 0;
    }
    if (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (!rps_parse_u64(line, &value) || value >= V1_NO_LIMIT) {
            value = 0;
        }
    }
    fclose(file);
    return value;
}

/* The least limit of the folder and those above it. */
static uint64_t
least_above(const char *root, char *path, const char *name)
{
    uint64_t least = 0;

    for (;;) {
        const uint64_t limit = number_in(root, path, name);
        char *slash = strrchr(path, '/');

        if (limit > 0 && (least == 0 || limit < least)) {
            least = limit;
        }
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

uint64_t
rps_cgroup_memory_max(const char *own, const char *root)
{
    char line[PATH_MAX];
    uint64_t least = 0;
    FILE *file = fopen(own, "re");

    /* "0::/path", or of version 1 "4:memory:/path" */
    while (file != NULL && least == 0 &&
            fgets(line, sizeof(line), file) != NULL) {
        char *path = strchr(line, ':');

        line[strcspn(line, "\n")] = '\0';
        if (path != NULL && strncmp(path, "::/", 3) == 0) {
            least = least_above(root, path + 2, "memory.max");
        } else if (path != NULL && strncmp(path, ":memory:/", 9) == 0) {
            char below[PATH_MAX];

            if (snprintf(below, sizeof(below), "%s/memory", root) <
                    (int)sizeof(below)) {
                least = least_above(below, path + 8, "memory.limit_in_bytes");
            }
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return least;
}
