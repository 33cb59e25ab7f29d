/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/memory.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static size_t
whole_pages(size_t bytes)
{
    const size_t page = BENCH_HUGE_BYTES;

    return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

void *
bench_huge_alloc(size_t bytes)
{
    const size_t size = whole_pages(bytes);
    const size_t mapped = size + BENCH_HUGE_BYTES;
    char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t head = 0;

    if (map == MAP_FAILED) {
        return NULL;
    }
    head = -(uintptr_t)map % BENCH_HUGE_BYTES;
    if (head > 0) {
        munmap(map, head);
    }
    if (mapped - head > size) {
        munmap(map + head + size, mapped - head - size);
    }
    madvise(map + head, size, MADV_HUGEPAGE); /* a wish: small pages do, too */
    return map + head;
}

void
bench_huge_free(void *memory, size_t bytes)
{
    if (memory != NULL) {
        munmap(memory, whole_pages(bytes));
    }
}

#define RESERVE_AHEAD ((size_t)8 << 20)

bool
bench_reserve_init(struct bench_reserve *reserve, size_t bytes)
{
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    (void)sched_setaffinity(0, sizeof(here), &here); /* warm less often */
    *reserve = (struct bench_reserve){.memory = bench_huge_alloc(bytes)};
    if (reserve->memory == NULL) {
        return false;
    }
    reserve->bytes = whole_pages(bytes);
    reserve->held = reserve->bytes;
    memset(reserve->memory, 1, reserve->bytes);
    return true;
}

void
bench_reserve_finish(struct bench_reserve *reserve)
{
    bench_huge_free(reserve->memory, reserve->bytes);
    *reserve = (struct bench_reserve){.memory = NULL};
}

bool
bench_reserve_is_due(const struct bench_reserve *reserve, size_t used)
{
    const size_t given = reserve->bytes - reserve->held;

    return reserve->held > 0 && used + RESERVE_AHEAD > given;
}

void
bench_reserve_give(struct bench_reserve *reserve)
{
    reserve->held -= BENCH_HUGE_BYTES;
    (void)madvise(
            reserve->memory + reserve->held, BENCH_HUGE_BYTES, MADV_DONTNEED);
}

/* The first n bytes of a small file, NUL-terminated; empty: unreadable. */
static void
read_small(const char *path, char *out, size_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, out, bytes - 1);

    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

uint64_t
bench_rss_bytes(void)
{
    char text[128];
    unsigned long long resident = 0;

    read_small("/proc/self/statm", text, sizeof(text));
    if (sscanf(text, "%*s %llu", &resident) != 1) {
        return 0;
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool
bench_rss_peak_reset(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, "5", 1) == 1;

    if (fd >= 0) {
        close(fd);
    }
    return done;
}

uint64_t
bench_rss_peak_bytes(void)
{
    char text[4096];
    const char *line = NULL;
    unsigned long long kib = 0;

    read_small("/proc/self/status", text, sizeof(text));
    line = strstr(text, "VmHWM:");
    if (line == NULL || sscanf(line, "VmHWM: %llu", &kib) != 1) {
        return 0;
    }
    return kib * 1024u;
}

/* The text between `open` and `close`, or "unknown". */
static void
copy_between(const char *text, const char *open_mark, const char *close_mark,
        char *out, size_t bytes)
{
    const char *start = strstr(text, open_mark);
    const char *end = NULL;

    if (start != NULL) {
        start += strlen(open_mark);
        end = strstr(start, close_mark);
    }
    if (end == NULL) {
        snprintf(out, bytes, "unknown");
        return;
    }
    snprintf(out, bytes, "%.*s", (int)(end - start), start);
}

void
bench_huge_pages_setting(char *out, size_t bytes)
{
    char text[256];

    read_small(
            "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text));
    copy_between(text, "[", "]", out, bytes);
}

void
bench_cpu_model(char *out, size_t bytes)
{
    char text[4096];

    read_small("/proc/cpuinfo", text, sizeof(text));
    copy_between(text, "model name\t: ", "\n", out, bytes);
}

uint64_t
bench_thread_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
