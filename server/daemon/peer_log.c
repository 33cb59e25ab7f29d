/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/peer_log.h"

#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WORDS_BYTES 2048u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rps_peer_limit shared; /* lock */

static struct rps_peer_window *
window_of(struct rps_peer_limit *limit, const char *event)
{
    uint32_t i = 0;

    while (i < RPS_PEER_LOG_EVENTS - 1 && limit->windows[i].event[0] != '\0' &&
            strncmp(limit->windows[i].event, event,
                    sizeof(limit->windows[i].event) - 1) != 0) {
        i++;
    }
    return &limit->windows[i];
}

bool
rps_peer_limit_take(struct rps_peer_limit *limit, enum rps_log_level level,
        const char *event, uint64_t now_ms)
{
    struct rps_peer_window *window = window_of(limit, event);

    if (!window->open) {
        memset(window, 0, sizeof(*window));
        strncpy(window->event, event, sizeof(window->event) - 1);
        window->level = level;
        window->open = true;
        window->begun_ms = now_ms;
    }
    window->count++;
    return window->count <= RPS_PEER_LOG_LINES;
}

bool
rps_peer_limit_end(struct rps_peer_limit *limit, uint64_t now_ms, bool all,
        struct rps_peer_rest *rest_out)
{
    for (uint32_t i = 0; i < RPS_PEER_LOG_EVENTS; i++) {
        struct rps_peer_window *window = &limit->windows[i];
        const uint64_t ms = now_ms - window->begun_ms;

        if (!window->open || (!all && ms < RPS_PEER_LOG_WINDOW_MS)) {
            continue;
        }
        window->open = false;
        if (window->count > RPS_PEER_LOG_LINES) {
            memcpy(rest_out->event, window->event, sizeof(rest_out->event));
            rest_out->level = window->level;
            rest_out->count = window->count - RPS_PEER_LOG_LINES;
            rest_out->ms = ms;
            return true;
        }
    }
    return false;
}

static bool
next_rest(bool all, struct rps_peer_rest *rest)
{
    bool found;

    pthread_mutex_lock(&lock);
    found = rps_peer_limit_end(&shared, rps_clock_ms(), all, rest);
    pthread_mutex_unlock(&lock);
    return found;
}

void
rps_peer_log_rest(bool all)
{
    struct rps_peer_rest rest;

    while (next_rest(all, &rest)) {
        rps_log(rest.level, rest.event, "%" PRIu64 " more in the last %.0f s",
                rest.count, (double)rest.ms / 1000.0);
    }
}

static void __attribute__((format(printf, 3, 0)))
log_limited(enum rps_log_level level, const char *event, const char *format,
        va_list arguments)
{
    char words[WORDS_BYTES];
    bool written;

    rps_peer_log_rest(false);
    pthread_mutex_lock(&lock);
    written = rps_peer_limit_take(&shared, level, event, rps_clock_ms());
    pthread_mutex_unlock(&lock);
    if (written) {
        vsnprintf(words, sizeof(words), format, arguments);
        rps_log(level, event, "%s", words);
    }
}

void
rps_peer_log(
        enum rps_log_level level, const char *event, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    log_limited(level, event, format, arguments);
    va_end(arguments);
}

void
rps_peer_log_of(const char *peer, enum rps_log_level level, const char *event,
        const char *format, ...)
{
    struct rps_log_about about = {.peer = peer};
    char words[WORDS_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    rps_log_enter(&about);
    rps_peer_log(level, event, "%s: %s", peer, words);
    rps_log_leave(&about);
}
