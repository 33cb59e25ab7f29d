/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/text.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* set before any other thread starts */
static enum rps_log_level level_least = RPS_LOG_INFO;
static enum rps_log_format format_chosen = RPS_LOG_TEXT;
static const char *role_own;
static uint32_t index_own;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void
rps_log_init(enum rps_log_level level, enum rps_log_format format)
{
    level_least = level;
    format_chosen = format;
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

static void
line_json(struct rps_text *line, enum rps_log_level level, const char *event,
        const char *words)
{
    char stamp[40];
    json_t *object = NULL;
    char *text = NULL;

    stamp_now(stamp);
    object = json_pack("{s:s, s:s, s:s, s:s}", "ts", stamp, "level",
            level_names[level], "event", event, "msg", words);
    if (object != NULL && role_own != NULL) {
        json_object_set_new(object, "role", json_string(role_own));
        json_object_set_new(object, "index", json_integer(index_own));
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

    if (level < level_least) {
        return;
    }
    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    if (format_chosen == RPS_LOG_JSON) {
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
