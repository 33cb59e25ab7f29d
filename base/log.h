/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line an event on stderr. text: "2026-01-31T12:00:00.123Z info
 * listening: port=2222"; json: one object a line with the same fields.
 * Programs call it; embedding/ and proto/ never do.
 */
#ifndef RPS_BASE_LOG_H
#define RPS_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum rps_log_level {
    RPS_LOG_DEBUG,
    RPS_LOG_INFO,
    RPS_LOG_WARN,
    RPS_LOG_ERROR
};

enum rps_log_format {
    RPS_LOG_TEXT,
    RPS_LOG_JSON
};

/** Also sees whether stderr is systemd's journal ($JOURNAL_STREAM): then each
 * line begins with its priority, "<6>". Threads: before any other starts. */
void rps_log_init(enum rps_log_level level, enum rps_log_format format);

/** From here on. Threads: any. */
void rps_log_set(enum rps_log_level level, enum rps_log_format format);

/** The least level alone. Threads: any. */
void rps_log_set_level(enum rps_log_level level);

/** "debug", "info", "warn", "error"; parse: false for other words. */
const char *rps_log_level_str(enum rps_log_level level);
bool rps_log_level_parse(const char *word, enum rps_log_level *level_out);

/** The least level that is written. Threads: any. */
enum rps_log_level rps_log_least(void);

/** Fields of every JSON line: job and incarnation. job is kept, not copied.
 * Threads: before any other starts. */
void rps_log_job(const char *job, uint64_t incarnation);

/** Fields of every line: role and index of this process. role is static. */
void rps_log_identity(const char *role, uint32_t index);

/**
 * Write one line. `event` is a stable word such as "checkpoint_saved"; the
 * rest is a sentence for people.
 *
 * Threads: any; a line is written whole.
 */
void rps_log(enum rps_log_level level, const char *event, const char *format,
        ...) __attribute__((format(printf, 3, 4)));

#endif /* RPS_BASE_LOG_H */
