/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: flags first (they find the cluster), then variables, then the
 * "recps" object of the document that was found. A value never replaces one
 * of a stronger origin, so the order of reading does not matter.
 */
#include "base/log.h"
#include "base/spec.h"
#include "conf/cluster_internal.h"
#include "conf/options_reader.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Programs that are no member of the job. */
#define TOOLS (RPS_SCOPE_TOOL | RPS_SCOPE_LAUNCH)

static const char tf_config_event[] = "tf_config";

bool
rps_option_given(const struct rps_options *options, const char *name)
{
    const struct rps_option_def *def = rps_option_find(name);

    return def != NULL && options->origins != NULL &&
           options->origins[def - rps_option_table] != RPS_ORIGIN_DEFAULT;
}

static void
say(const struct rps_reader *reader, enum rps_log_level level,
        const char *event, const char *words)
{
    const struct rps_options *options = reader->options;
    const bool is_json =
            reader->logs ||
            ((reader->scope & TOOLS) == 0 && options->log_format != NULL &&
                    strcmp(options->log_format, "json") == 0);

    if (options->quiet) {
        return;
    }
    if (is_json && !options->check_config) {
        rps_log_init(rps_log_least(), RPS_LOG_JSON);
        rps_log(level, event, "%s", words);
    } else if (event == tf_config_event) { /* its words say what they are of */
        (void)fprintf(stderr, "%s\n", words);
    } else {
        (void)fprintf(stderr, "%s: %s\n", reader->program, words);
    }
}

int
rps_reader_refuse(
        const struct rps_reader *reader, int code, const char *format, ...)
{
    char words[RPS_ERROR_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    say(reader, RPS_LOG_ERROR, code == RPS_EXIT_USAGE ? "bad_option" : "start",
            words);
    free(reader->options->refusal);
    reader->options->refusal = strdup(words);
    return code;
}

/* Is this argument --log-format with the value json? `next` may be NULL. */
static bool
asks_json(const char *argument, const char *next)
{
    static const char *const names[] = {"--log-format", "--log_format"};
    bool asks = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(names[i]);

        if (strncmp(argument, names[i], length) == 0) {
            asks = strcmp(argument + length, "=json") == 0 ||
                   (argument[length] == '\0' && next != NULL &&
                           strcmp(next, "json") == 0);
        }
    }
    return asks;
}

/* Who reads JSON reads nothing else: asked before the options are read, for
 * one of them may be what is refused. */
static bool
wants_json_lines(const struct rps_reader *reader)
{
    const char *variable = getenv("RECPS_LOG_FORMAT");
    bool wants = variable != NULL && strcmp(variable, "json") == 0;

    for (int i = 1; i < reader->argc; i++) {
        wants = wants || asks_json(reader->argv[i], reader->argv[i + 1]);
    }
    return wants && (reader->scope & TOOLS) == 0;
}

/* Variables of the build, of its tests, of `recps launch`, of Python. */
static bool
is_foreign_variable(const char *name)
{
    static const char *const beginnings[] = {"RECPS_TEST_", "RECPS_BUILD",
            "RECPS_SOURCE", "RECPS_PROGRESS", "RECPS_RESTART_COUNT",
            "RECPS_RECPSD", "RECPS_REQUEST_TIMEOUT"};

    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* A variable that no program takes is a slip: said, not refused. */
static void
warn_of_variable(const struct rps_reader *reader, const char *entry)
{
    char written[RPS_OPTION_NAME_MAX];
    char name[RPS_OPTION_NAME_MAX];
    char variable[RPS_OPTION_NAME_MAX];
    char words[RPS_ERROR_BYTES];
    struct rps_quoted quoted;
    const size_t length = strcspn(entry, "=");
    const char *meant = NULL;

    if (length >= sizeof(written) || is_foreign_variable(entry)) {
        return;
    }
    memcpy(written, entry, length);
    written[length] = '\0';
    for (size_t i = 6; i <= length; i++) {
        name[i - 6] = (char)tolower((unsigned char)written[i]);
    }
    if (rps_option_find(name) != NULL &&
            strcmp(rps_option_variable(name, variable), written) == 0) {
        return;
    }
    meant = rps_option_meant(name, RPS_SCOPE_JOB, false);
    (void)snprintf(words, sizeof(words),
            "warning: variable %s is no option%s%s%s",
            rps_printable(&quoted, written),
            meant != NULL ? "; did you mean " : "",
            meant != NULL ? rps_option_variable(meant, variable) : "",
            meant != NULL ? "?" : "");
    say(reader, RPS_LOG_WARN, "bad_variable", words);
}

static int
read_variables(const struct rps_reader *reader)
{
    char variable[RPS_OPTION_NAME_MAX];
    char why[RPS_OPTION_WHY_MAX];

    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, "RECPS_", 6) == 0) {
            warn_of_variable(reader, *at);
        }
    }
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        const char *value = getenv(rps_option_variable(def->name, variable));
        if (value == NULL || (def->scope & reader->scope) == 0) {
            continue;
        }
        if (!rps_option_set(reader->options, def, value, RPS_ORIGIN_ENV, why)) {
            return rps_reader_refuse(
                    reader, RPS_EXIT_USAGE, "variable %s: %s", variable, why);
        }
    }
    return RPS_EXIT_GO_ON;
}

/* Another program's option is fine here, a name of none is not. */
static rps_status
read_member(const struct rps_reader *reader, const char *key,
        const json_t *value, rps_cluster_error *error)
{
    char why[RPS_OPTION_WHY_MAX];
    struct rps_quoted quoted;
    const struct rps_option_def *def = rps_option_find(key);

    if (def == NULL) {
        const char *meant = rps_option_meant(key, RPS_SCOPE_JOB, false);
        return rps_cluster_refuse(error, "E_OPTION",
                "recps: no option %s%s%s%s", rps_quote(&quoted, key),
                meant == NULL ? "" : "; did you mean \"",
                meant == NULL ? "" : meant, meant == NULL ? "" : "\"?");
    }
    if ((def->scope & reader->scope) != 0 &&
            !rps_option_set_json(reader->options, def, value, why)) {
        return rps_cluster_refuse(
                error, "E_OPTION", "recps.%s: %s", def->name, why);
    }
    return RPS_OK;
}

static rps_status
read_recps(const struct rps_reader *reader, rps_cluster_error *error)
{
    const char *text = reader->options->cluster.recps_json;
    rps_status status = RPS_OK;
    const char *key = NULL;
    json_t *value = NULL;
    json_t *object = NULL;

    if (text == NULL) {
        return RPS_OK;
    }
    object = json_loads(text, 0, NULL);
    if (object == NULL) {
        return RPS_E_NOMEM;
    }
    json_object_foreach(object, key, value)
    {
        status = read_member(reader, key, value, error);
        if (status != RPS_OK) {
            break;
        }
    }
    json_decref(object);
    return status;
}

static int
resolve(const struct rps_reader *reader)
{
    struct rps_options *options = reader->options;
    rps_cluster_error error = {"", NULL};
    rps_status status =
            rps_cluster_resolve(&options->cluster, reader->cluster, &error);

    if (status == RPS_OK) {
        status = read_recps(reader, &error);
    }
    if (status == RPS_OK) {
        return RPS_EXIT_GO_ON;
    }
    if (error.message == NULL) {
        return rps_reader_refuse(reader, RPS_EXIT_MEMORY, "out of memory");
    }
    say(reader, RPS_LOG_ERROR, tf_config_event, error.message);
    options->refusal = strdup(error.message);
    if (options->check_config && options->json) {
        rps_check_config_refused(&error);
    }
    rps_cluster_error_finish(&error);
    return RPS_EXIT_CONFIG;
}

static enum rps_log_level
least_level(const struct rps_options *options)
{
    enum rps_log_level level = RPS_LOG_INFO;

    (void)rps_log_level_parse(options->log_level, &level); /* it was checked */
    return level;
}

/*
 * What was ignored is for who looks (info); what was replaced or read under
 * another name is for everybody (warn). A tool is quiet about the former.
 */
static void
log_notes(const struct rps_options *options, uint32_t scope)
{
    const bool tool = (scope & TOOLS) != 0;
    enum rps_log_level least = least_level(options);
    const char *note = options->cluster.notes;

    if (tool && least < RPS_LOG_WARN) {
        least = RPS_LOG_WARN;
    }
    rps_log_init(least, strcmp(options->log_format, "json") == 0
                                ? RPS_LOG_JSON
                                : RPS_LOG_TEXT);
    while (note != NULL && *note != '\0') {
        const size_t length = strcspn(note, "\n");
        const bool ignored = strncmp(note, "ignored: ", 9) == 0 ||
                             strncmp(note, "task index ", 11) == 0;
        rps_log(ignored ? RPS_LOG_INFO : RPS_LOG_WARN, "tf_config", "%.*s",
                (int)length, note);
        note += length;
        note += *note == '\n';
    }
}

/* A server that no table could be opened on is a slip. */
static int
check_memory(const struct rps_reader *reader)
{
    const uint64_t limit = reader->options->memory_limit;

    if (reader->options->disk_limit > 0 &&
            reader->options->disk_tier[0] == '\0') {
        return rps_reader_refuse(reader, RPS_EXIT_USAGE,
                "--disk-limit bounds the file of --disk-tier: give that, too");
    }
    if (limit == 0 || limit >= RPS_MEMORY_LIMIT_MIN ||
            (reader->scope & (RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH)) == 0) {
        return RPS_EXIT_GO_ON;
    }
    return rps_reader_refuse(reader, RPS_EXIT_USAGE,
            "--memory-limit is %llu bytes: a server needs %lluMiB at least "
            "for one empty table (0: no limit)",
            (unsigned long long)limit,
            (unsigned long long)(RPS_MEMORY_LIMIT_MIN >> 20));
}

/* What is given as longer than all is a slip; a default gives way to it. */
static int
check_drain(const struct rps_reader *reader)
{
    const struct rps_options *options = reader->options;

    if ((reader->scope & (RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH)) == 0 ||
            !rps_option_given(options, "drain_delay") ||
            options->drain_delay <= options->drain_timeout) {
        return RPS_EXIT_GO_ON;
    }
    return rps_reader_refuse(reader, RPS_EXIT_USAGE,
            "--drain-delay is %g s and --drain-timeout %g s: the end is over "
            "before the delay; the delay must be the shorter one",
            options->drain_delay, options->drain_timeout);
}

/* It is said in logs and in JSON, and compared by others. */
static int
check_job_id(const struct rps_reader *reader)
{
    const char *text = reader->options->job_id;
    json_t *string = json_string(text);
    const bool is_utf8 = string != NULL;
    struct rps_quoted quoted;
    const char *at = text;

    json_decref(string);
    while ((unsigned char)*at >= 0x20 && *at != 0x7f) {
        at++;
    }
    if (is_utf8 && *at == '\0') {
        return RPS_EXIT_GO_ON;
    }
    return rps_reader_refuse(reader, RPS_EXIT_USAGE,
            "--job-id is %s: it must be UTF-8 text without control characters "
            "(line ends, tabs, ...)",
            rps_quote(&quoted, text));
}

/* An empty text would be the main port's default. */
static int
check_admin(const struct rps_reader *reader)
{
    if ((reader->scope & (RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH)) == 0 ||
            reader->options->admin[0] != '\0') {
        return RPS_EXIT_GO_ON;
    }
    return rps_reader_refuse(reader, RPS_EXIT_USAGE,
            "--admin is empty: give host:port, or off for no admin port");
}

static int
check_values(const struct rps_reader *reader)
{
    int (*const checks[])(const struct rps_reader *reader) = {
            check_memory, check_drain, check_job_id, check_admin};
    int code = RPS_EXIT_GO_ON;

    for (size_t i = 0;
            code == RPS_EXIT_GO_ON && i < sizeof(checks) / sizeof(checks[0]);
            i++) {
        code = checks[i](reader);
    }
    return code;
}

int
rps_options_read(struct rps_options *options, uint32_t scope,
        const char *program, const char *usage, bool stop_at_operand, int argc,
        char **argv)
{
    rps_cluster_options cluster;
    struct rps_reader reader = {.options = options,
            .cluster = &cluster,
            .scope = scope,
            .program = program,
            .usage = usage,
            .stop_at_operand = stop_at_operand,
            .argc = argc,
            .argv = argv};
    const bool quiet = options->quiet;
    int code = RPS_EXIT_GO_ON;

    reader.logs = wants_json_lines(&reader);
    rps_cluster_options_init(&cluster);
    cluster.task_optional = (scope & TOOLS) != 0;
    if (!rps_options_default(options)) {
        return rps_reader_refuse(&reader, RPS_EXIT_MEMORY, "out of memory");
    }
    options->quiet = quiet;
    code = rps_flags_read(&reader);
    if (code == RPS_EXIT_GO_ON) {
        code = read_variables(&reader);
    }
    if (code == RPS_EXIT_GO_ON) {
        code = resolve(&reader);
    }
    if (code == RPS_EXIT_GO_ON) {
        code = check_values(&reader);
    }
    if (code == RPS_EXIT_GO_ON && !options->check_config) {
        log_notes(options, scope); /* --check-config prints them */
    }
    return code;
}
