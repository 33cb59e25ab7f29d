/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include "base/text.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
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

/* The number behind "NAME: " on a line of a file. */
static bool
number_of(const char *path, const char *name, uint64_t *out)
{
    const size_t length = strlen(name);
    char line[256];
    FILE *file = fopen(path, "re");
    bool found = false;

    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, name, length) == 0 && line[length] == ':' &&
                sscanf(line + length + 1, "%" SCNu64, out) == 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

bool
rps_process_disk(uint64_t *read_out, uint64_t *written_out)
{
    static const char path[] = "/proc/self/io";

    return number_of(path, "read_bytes", read_out) &&
           number_of(path, "write_bytes", written_out);
}

uint64_t
rps_memory_total(void)
{
    uint64_t kilobytes = 0;

    (void)number_of("/proc/meminfo", "MemTotal", &kilobytes);
    return kilobytes * 1024;
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

/* "max 100000", "150000 100000": quota and period; 0: no quota. */
static double
quota_in(const char *root, const char *path)
{
    char whole[PATH_MAX];
    char line[64] = "";
    double quota = 0.0, period = 0.0;
    FILE *file;

    if (snprintf(whole, sizeof(whole), "%s%s/cpu.max", root, path) >=
            (int)sizeof(whole)) {
        return 0.0;
    }
    file = fopen(whole, "re");
    if (file == NULL) {
        return 0.0;
    }
    if (fgets(line, sizeof(line), file) == NULL ||
            sscanf(line, "%lf %lf", &quota, &period) != 2 || period <= 0.0) {
        quota = 0.0;
        period = 1.0;
    }
    fclose(file);
    return quota > 0.0 ? quota / period : 0.0;
}

/* The least quota on the way to the root; 0: none. */
static double
least_quota(const char *own, const char *root)
{
    char line[PATH_MAX];
    double least = 0.0;
    FILE *file = fopen(own, "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *slash;

        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) != 0) {
            continue;
        }
        do {
            const double quota = quota_in(root, line + 3);

            least = quota > 0.0 && (least == 0.0 || quota < least) ? quota
                                                                   : least;
            slash = strrchr(line + 3, '/');
            if (slash != NULL) {
                *slash = '\0';
            }
        } while (slash != NULL);
    }
    if (file != NULL) {
        fclose(file);
    }
    return least;
}

double
rps_processors(const char *own, const char *root)
{
    const double quota = least_quota(own, root);
    cpu_set_t set;
    double count = 1.0;

    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        count = (double)CPU_COUNT(&set);
    }
    return quota > 0.0 && quota < count ? quota : count;
}
