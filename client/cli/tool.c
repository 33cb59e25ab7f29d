/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/tool.h"

#include "base/tls.h"
#include "base/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A person waits: much shorter than a job's patience with its servers. */
#define CONNECT_MS_DEFAULT 5000u
#define REQUEST_MS         60000u

/* For --json: the cause is said first. */
static char first_words[RPS_ERROR_BYTES];
static rps_status first_status;
static bool answered;  /* stdout has its object */
static bool lost;      /* stdout took no more */
static int lost_errno; /* why, where that is known */

void
rps_tool_begin(const struct rps_tool *tool)
{
    first_words[0] = '\0';
    first_status = RPS_OK;
    answered = false;
    for (struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL; flag++) {
        flag->value = NULL;
    }
}

static void __attribute__((format(printf, 3, 0)))
say(const char *tool, rps_status status, const char *format, va_list arguments)
{
    char words[RPS_ERROR_BYTES];

    vsnprintf(words, sizeof(words), format, arguments);
    fprintf(stderr, "recps%s%s: %s\n", tool[0] != '\0' ? " " : "", tool, words);
    if (first_words[0] == '\0') {
        memcpy(first_words, words, sizeof(words));
        first_status = status;
    }
}

int
rps_tool_fail(int code, const char *tool, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(tool, RPS_OK, format, arguments);
    va_end(arguments);
    return code;
}

int
rps_tool_fail_status(
        const char *tool, rps_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(tool, status, format, arguments);
    va_end(arguments);
    return rps_tool_exit_of(status);
}

int
rps_tool_fail_input(
        const char *tool, rps_status status, const struct rps_error *error)
{
    switch (status) {
    case RPS_E_NOT_FOUND:
    case RPS_E_IO:
    case RPS_E_INVAL: /* not a file */
        return rps_tool_fail(RPS_TOOL_NOINPUT, tool, "%s", error->text);
    case RPS_E_CORRUPT:
    case RPS_E_LIMIT:
        return rps_tool_fail(RPS_TOOL_CORRUPT, tool, "%s", error->text);
    default:
        return rps_tool_fail(RPS_TOOL_FAILED, tool, "%s", error->text);
    }
}

int
rps_tool_fail_output(const char *tool, const char *what, rps_status status,
        const struct rps_error *error)
{
    (void)rps_tool_flush();
    return rps_tool_fail(status == RPS_E_NOMEM ? RPS_TOOL_FAILED : RPS_TOOL_IO,
            tool, "%s: %s", what, error->text);
}

void
rps_tool_print_failure(int code, const char *words)
{
    json_t *object;

    if (answered) {
        return;
    }
    if (first_words[0] != '\0') {
        words = first_words;
    }
    /* a file's name need not be UTF-8, JSON must */
    object = json_pack("{s:i}", "exit", code);
    if (json_object_set_new(object, "error",
                json_string(words != NULL ? words : "failed")) != 0) {
        json_object_set_new(object, "error",
                json_string("the words are on stderr: they are not UTF-8"));
    }
    if (first_status != RPS_OK) {
        json_object_set_new(
                object, "status", json_string(rps_status_str(first_status)));
    }
    rps_tool_print_json(object);
}

int
rps_tool_exit_of(rps_status status)
{
    switch (status) {
    case RPS_OK:
        return RPS_TOOL_OK;
    case RPS_E_CORRUPT:
        return RPS_TOOL_CORRUPT;
    case RPS_E_UNREACHABLE:
    case RPS_E_TIMEOUT:
        return RPS_TOOL_UNAVAILABLE;
    case RPS_E_AUTH:
        return RPS_TOOL_NOPERM;
    default:
        return RPS_TOOL_FAILED;
    }
}

int
rps_tool_client_failed(rps_client *client, const char *tool, rps_status status)
{
    const char *words = rps_client_error(client);

    return rps_tool_fail_status(tool, status, "%s (%s)",
            words[0] != '\0' ? words : "failed", rps_status_str(status));
}

static void
report(void *context, const char *line)
{
    fprintf(stderr, "recps %s: %s\n", (const char *)context, line);
}

int
rps_tool_settings(const struct rps_tool_call *call, const char *tool,
        rps_client_options *settings)
{
    const struct rps_options *options = call->options;
    const struct rps_tls_files files = {.cert = options->tls_cert,
            .key = options->tls_key,
            .ca = options->tls_ca};
    struct rps_error error = {{0}};

    if (options->cluster.ps_count == 0) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool,
                "no parameter server is known: give --ps-hosts "
                "host:port,…, TF_CONFIG or TF_CONFIG_FILE");
    }
    if (rps_tls_is_asked(&files) &&
            rps_tls_check_given(RPS_TLS_CLIENT, &files, &error) != RPS_OK) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool, "%s", error.text);
    }
    rps_client_options_init(settings);
    settings->cluster = &options->cluster;
    settings->job_id = options->job_id;
    settings->job_seed = options->job_seed;
    settings->connect_timeout_ms =
            rps_option_given(options, "connect_timeout")
                    ? (uint32_t)(options->connect_timeout * 1000.0)
                    : CONNECT_MS_DEFAULT;
    settings->reconnect_timeout_ms =
            rps_option_given(options, "reconnect_timeout")
                    ? (uint32_t)(options->reconnect_timeout * 1000.0)
                    : settings->connect_timeout_ms;
    settings->request_timeout_ms = REQUEST_MS;
    (void)rps_transport_parse(options->transport, &settings->transport);
    settings->unix_dir = options->unix_dir;
    settings->token_file = options->token_file;
    settings->tls_ca = options->tls_ca;
    settings->tls_cert = options->tls_cert;
    settings->tls_key = options->tls_key;
    settings->report = report;
    /* a string constant; report() only reads it */
    settings->report_context = (void *)(uintptr_t)tool;
    return RPS_TOOL_OK;
}

int
rps_tool_open(const struct rps_tool_call *call, const char *tool,
        rps_client **client_out)
{
    rps_client_options settings;
    int code = rps_tool_settings(call, tool, &settings);

    if (code == RPS_TOOL_OK) {
        const rps_status status = rps_client_open(client_out, &settings);

        code = status == RPS_OK ? RPS_TOOL_OK
                                : rps_tool_client_failed(NULL, tool, status);
    }
    return code;
}

json_t *
rps_tool_stat_all(rps_client *client, const char *tool, uint32_t ps_count,
        bool digests, int *code_out)
{
    json_t *list = json_array();

    *code_out = RPS_TOOL_OK;
    for (uint32_t ps = 0; ps < ps_count; ps++) {
        char *text = NULL;
        rps_status status = digests ? rps_stat_digests(client, ps, &text)
                                    : rps_stat(client, ps, &text);
        json_t *value;

        if (status != RPS_OK) {
            *code_out = rps_tool_client_failed(client, tool, status);
            json_decref(list);
            return NULL;
        }
        value = json_loads(text, 0, NULL);
        free(text);
        if (!json_is_object(value) || json_array_append_new(list, value) != 0) {
            *code_out = rps_tool_fail(RPS_TOOL_FAILED, tool,
                    "ps %" PRIu32 ": its answer is not a JSON object", ps);
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

void
rps_tool_answered(void)
{
    answered = true;
}

int
rps_tool_print_json(json_t *value)
{
    char *text = value == NULL
                         ? NULL
                         : json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS |
                                                     JSON_REAL_PRECISION(9));
    bool good = false;

    json_decref(value);
    answered = true;
    if (text == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "", "no memory");
    }
    (void)puts(text);
    free(text);
    good = rps_tool_flush();
    return good ? RPS_TOOL_OK : RPS_TOOL_IO;
}

/* What does not go out mostly stays in the buffer, so that why is known here;
 * of a large piece that was printed before only the error flag is left. */
bool
rps_tool_flush(void)
{
    if (fflush(stdout) != 0 && !lost) {
        lost_errno = errno;
    }
    lost = lost || lost_errno != 0 || ferror(stdout) != 0;
    return !lost;
}

int
rps_tool_end(int code)
{
    if (rps_tool_flush()) {
        return code;
    }
    if (lost_errno != EPIPE) { /* who closed it knows */
        fprintf(stderr, "recps: cannot write the answer%s%s\n",
                lost_errno != 0 ? ": " : "",
                lost_errno != 0 ? strerror(lost_errno) : "");
    }
    return code == RPS_TOOL_OK ? RPS_TOOL_IO : code;
}
