/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* relaxed: a line that is written while they change may go either way */
static _Atomic uint32_t level_least = RPS_LOG_INFO;
static _Atomic uint32_t format_chosen = RPS_LOG_TEXT;
/* stderr is systemd's: lines begin with a priority */
static atomic_bool to_journal;

/* set before any other thread starts */
static const char *role_own;
static uint32_t index_own;
static const char *job_own;
static uint64_t incarnation_own;

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static const int priorities[] = {7, 6, 4, 3}; /* syslog's */
#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

/* systemd says which file the journal reads; stderr may be another by now. */
static bool
is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uint64_t device = 0, inode = 0;
    struct stat own;

    return stream != NULL &&
           sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &own) == 0 && own.st_dev == device &&
           own.st_ino == inode;
}

void
rps_log_set(enum rps_log_level level, enum rps_log_format format)
{
    atomic_store_explicit(&level_least, (uint32_t)level, memory_order_relaxed);
    atomic_store_explicit(
            &format_chosen, (uint32_t)format, memory_order_relaxed);
}

void
rps_log_set_level(enum rps_log_level level)
{
    atomic_store_explicit(&level_least, (uint32_t)level, memory_order_relaxed);
}

const char *
rps_log_level_str(enum rps_log_level level)
{
    return level_names[level];
}

bool
rps_log_level_parse(const char *word, enum rps_log_level *level_out)
{
    for (uint32_t i = 0; i < LEVEL_COUNT; i++) {
        if (strcmp(level_names[i], word) == 0) {
            *level_out = (enum rps_log_level)i;
            return true;
        }
    }
    return false;
}

void
rps_log_init(enum rps_log_level level, enum rps_log_format format)
{
    rps_log_set(level, format);
    atomic_store_explicit(&to_journal, is_journal(), memory_order_relaxed);
}

enum rps_log_level
rps_log_least(void)
{
    return (enum rps_log_level)atomic_load_explicit(
            &level_least, memory_order_relaxed);
}

void
rps_log_job(const char *job, uint64_t incarnation)
{
    job_own = job;
    incarnation_own = incarnation;
}

void
rps_log_identity(const char *role, uint32_t index)
{
    role_own = role;
    index_own = index;
}

/* RFC 3339, milliseconds, UTC. */
static void
stamp_now(char out[40])
{
    struct timespec now;
    struct tm utc;
    char seconds[24];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, 40, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
}

/* The bytes of a UTF-8 character that begins here; 0: none does. Decoding it
 * is left to jansson, which refuses what is not in its shortest form. */
static size_t
character_bytes(const char *text)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t bytes = first < 0x80   ? 1
                         : first < 0xc2 ? 0
                         : first < 0xe0 ? 2
                         : first < 0xf0 ? 3
                         : first < 0xf5 ? 4
                                        : 0;

    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return bytes;
}

/* A string of any bytes: what is not UTF-8 (a path may be anything, and a
 * long line is cut anywhere) becomes '?'. */
static json_t *
json_words(const char *words)
{
    struct rps_text text = {.bytes = NULL};
    json_t *string = json_string(words);

    if (string != NULL) {
        return string;
    }
    while (*words != '\0') {
        const size_t bytes = character_bytes(words);
        json_t *one = bytes == 0 ? NULL : json_stringn(words, bytes);
        rps_text_add_bytes(
                &text, one == NULL ? "?" : words, one == NULL ? 1 : bytes);
        json_decref(one);
        words += bytes == 0 ? 1 : bytes;
    }
    string = json_string(text.bytes == NULL ? "" : text.bytes);
    rps_text_finish(&text);
    return string;
}

static void
line_json(struct rps_text *line, enum rps_log_level level, const char *event,
        const char *words)
{
    char stamp[40];
    json_t *object = NULL;
    char *text = NULL;

    stamp_now(stamp);
    object = json_pack("{s:s, s:s, s:s, s:o}", "ts", stamp, "level",
            level_names[level], "event", event, "msg", json_words(words));
    if (object != NULL && role_own != NULL) {
        json_object_set_new(object, "role", json_string(role_own));
        json_object_set_new(object, "index", json_integer(index_own));
    }
    if (object != NULL && job_own != NULL) {
        snprintf(stamp, sizeof(stamp), "%016" PRIx64, incarnation_own);
        json_object_set_new(object, "job", json_words(job_own));
        json_object_set_new(object, "incarnation", json_string(stamp));
    }
    text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    if (text != NULL) {
        rps_text_add(line, "%s\n", text);
    }
    free(text);
    json_decref(object);
}

static void
line_text(struct rps_text *line, enum rps_log_level level, const char *event,
        const char *words)
{
    char stamp[40];

    stamp_now(stamp);
    rps_text_add(
            line, "%s %s %s: %s\n", stamp, level_names[level], event, words);
}

void
rps_log(enum rps_log_level level, const char *event, const char *format, ...)
{
    struct rps_text line = {0};
    char words[2048];
    va_list args;

    if (level < rps_log_least()) {
        return;
    }
    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    if (atomic_load_explicit(&to_journal, memory_order_relaxed)) {
        rps_text_add(&line, "<%d>", priorities[level]);
    }
    if (atomic_load_explicit(&format_chosen, memory_order_relaxed) ==
            RPS_LOG_JSON) {
        line_json(&line, level, event, words);
    } else {
        line_text(&line, level, event, words);
    }
    /* one call under stderr's lock: lines of several threads do not mix */
    if (line.bytes != NULL) {
        fwrite(line.bytes, 1, line.length, stderr);
    }
    rps_text_finish(&line);
}
