/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps precision check-deterministic: COMMAND several times, one run after
 * the other, each with a JSON log and a file of its output; what they say
 * together is precision_check_answer.c's.
 */
#include "client/cli/precision_check.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "client/cli/launch.h"
#include "client/cli/precision.h"
#include "client/cli/precision_child.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOOL           "precision check-deterministic"
#define TIMES_DEFAULT  2u
#define PATIENCE_MS    60000u
#define TAIL_BYTES     4096u /* of an output, told where its run failed */
#define TAIL_LINES_MAX 20u

static const char usage[] =
        "usage: recps precision check-deterministic [OPTION]... -- COMMAND "
        "[ARGUMENT]...\n"
        "\n"
        "Run COMMAND K times, one run after the other, and say at which step "
        "their\n"
        "losses part. COMMAND is a training: recps-train, or recps launch ... "
        "--\n"
        "recps-train. Each run logs its losses to a file of its own, which "
        "recps-train\n"
        "learns from RECPS_JSON_LOG; leave --json-log out. In the words of "
        "COMMAND\n"
        "{log} becomes this file, for another program to write (a line a "
        "step,\n"
        "{\"step\": 1, \"loss\": 0.7}), and {run} the run's number from 1 on, "
        "so that\n"
        "each may have a --checkpoint-dir of its own.\n"
        "\n"
        "All losses equal: the randomness is fixed. The first equal and later "
        "ones\n"
        "different by less than --tolerance: it is, but sums are not made in "
        "one\n"
        "order; with --exact, and where COMMAND is --deterministic, that is "
        "not\n"
        "enough. Else the first step that differs is told. Exit code 0: it is "
        "fixed;\n"
        "1: it is not.\n";

static struct rps_tool_flag flags[] = {
        [RPS_CHECK_TIMES] = {.name = "times",
                .argument = "K",
                .help = "runs, 2 to 100 (2)"},
        [RPS_CHECK_TOLERANCE] = {.name = "tolerance",
                .argument = "LOSS",
                .help = "later losses may differ by less than this (0.001)"},
        [RPS_CHECK_EXACT] = {.name = "exact",
                .help = "they may not differ at all"},
        [RPS_CHECK_KEEP] = {.name = "keep",
                .argument = "DIR",
                .help = "keep the logs and outputs in this new folder"},
        [RPS_CHECK_OUTPUT] = {.name = "output",
                .is_output = true,
                .argument = "FILE",
                .letter = "o",
                .help = "write the losses, a column a run, as CSV"},
        {.name = NULL},
};

/* --- words of COMMAND ------------------------------------------------------
 */

/* The word with {log} and {run} replaced; free(). NULL: no memory. */
static char *
fill_in(const char *word, const char *log, size_t run)
{
    struct rps_text text = {.bytes = NULL};

    rps_text_add_bytes(&text, "", 0);
    while (*word != '\0') {
        if (strncmp(word, "{log}", 5) == 0) {
            rps_text_add(&text, "%s", log);
            word += 5;
        } else if (strncmp(word, "{run}", 5) == 0) {
            rps_text_add(&text, "%zu", run + 1);
            word += 5;
        } else {
            rps_text_add_bytes(&text, word++, 1);
        }
    }
    if (text.bytes == NULL && !text.failed) {
        return strdup("");
    }
    if (text.failed) {
        rps_text_finish(&text);
    }
    return text.bytes;
}

static void
free_words(char **words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        free(words[i]);
    }
    free(words);
}

static char **
fill_in_all(char *const *command, const char *log, size_t run)
{
    size_t count = 0;
    char **words;

    while (command[count] != NULL) {
        count++;
    }
    words = calloc(count + 1, sizeof(*words));
    for (size_t i = 0; words != NULL && i < count; i++) {
        words[i] = fill_in(command[i], log, run);
        if (words[i] == NULL) {
            free_words(words);
            return NULL;
        }
    }
    return words;
}

/* --- progress --------------------------------------------------------------
 */

struct showing {
    const struct rps_check *check;
    const char *log;
    size_t run;
    uint64_t began_ms;
    bool terminal;
    bool shown;
};

/* The last bytes of a file, NUL behind them. Returns how many. */
static size_t
read_tail(const char *path, char tail[TAIL_BYTES + 1])
{
    FILE *file = fopen(path, "re");
    size_t n = 0;

    if (file != NULL) {
        if (fseek(file, -(long)TAIL_BYTES, SEEK_END) != 0) {
            rewind(file);
        }
        n = fread(tail, 1, TAIL_BYTES, file);
        (void)fclose(file);
    }
    tail[n] = '\0';
    return n;
}

/* The last whole line, NUL in place of its end; NULL: there is none. */
static const char *
last_line(char *tail)
{
    char *end = strrchr(tail, '\n');
    const char *before;

    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    before = strrchr(tail, '\n');
    return before != NULL ? before + 1 : tail;
}

static void
show(void *context)
{
    struct showing *showing = context;
    char tail[TAIL_BYTES + 1];
    const char *line;
    json_t *object;
    const json_t *step;

    if (!showing->terminal) {
        return;
    }
    (void)read_tail(showing->log, tail);
    line = last_line(tail);
    object = line != NULL ? json_loads(line, 0, NULL) : NULL;
    step = json_object_get(object, "step");
    fprintf(stderr, "\r\033[Krun %zu of %zu", showing->run + 1,
            showing->check->times);
    if (json_is_integer(step)) {
        fprintf(stderr, ": step %" JSON_INTEGER_FORMAT ", loss %.6g",
                json_integer_value(step),
                json_number_value(json_object_get(object, "loss")));
    }
    fprintf(stderr, ", %" PRIu64 " s",
            (rps_clock_ms() - showing->began_ms) / 1000);
    fflush(stderr);
    showing->shown = true;
    json_decref(object);
}

static void
clear(struct showing *showing)
{
    if (showing->shown) {
        fputs("\r\033[K", stderr);
        showing->shown = false;
    }
}

/* --- a run -----------------------------------------------------------------
 */

/* The last lines of what it printed. */
static void
print_tail(const char *path)
{
    char tail[TAIL_BYTES + 1];
    const size_t n = read_tail(path, tail);
    size_t at = n;
    unsigned lines = 0;

    while (at > 0 &&
            (tail[at - 1] != '\n' || at == n || ++lines < TAIL_LINES_MAX)) {
        at--;
    }
    fwrite(tail + at, 1, n - at, stderr);
    if (n > 0 && tail[n - 1] != '\n') {
        fputc('\n', stderr);
    }
}

/* How it ended, if not well. An exit code. */
static int
judge_end(const struct rps_check *check, size_t run,
        const struct rps_precision_child *child, const char *name)
{
    if (child->failed_errno != 0) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "cannot start %s: %s", name,
                strerror(child->failed_errno));
    }
    if (child->signal_number != 0) {
        return rps_tool_fail(128 + child->signal_number, TOOL,
                "%s: run %zu of %zu was ended", strsignal(child->signal_number),
                run + 1, check->times);
    }
    if (child->code != 0) {
        print_tail(child->output);
        return rps_tool_fail(child->code == 126 || child->code == 127
                                     ? child->code
                                     : RPS_TOOL_FAILED,
                TOOL, "run %zu of %zu: %s ended with code %d%s", run + 1,
                check->times, name, child->code,
                check->keep != NULL ? "" : " (--keep DIR keeps all it said)");
    }
    return RPS_TOOL_OK;
}

static bool
has_own_log(char *const *command)
{
    for (; *command != NULL; command++) {
        if (strncmp(*command, "--json-log", 10) == 0 ||
                strncmp(*command, "--json_log", 10) == 0) {
            return true;
        }
    }
    return false;
}

/* What it logged. An exit code. */
static int
read_log(struct rps_check *check, size_t run, const char *log)
{
    struct rps_losses *losses = &check->runs[run];
    struct rps_error error = {.text = ""};
    const rps_status status = rps_losses_read(losses, log, &error);

    if (status == RPS_OK && losses->count > 0) {
        return RPS_TOOL_OK;
    }
    if (status == RPS_OK && losses->done != NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "run %zu trained no step%s",
                run + 1,
                run > 0 ? ": did it go on from the checkpoint that the one "
                          "before left? Give each its own: --checkpoint-dir "
                          "DIR/{run}"
                        : "");
    }
    if (status != RPS_OK && status != RPS_E_NOT_FOUND) {
        return rps_tool_fail_status(
                TOOL, status, "run %zu: %s", run + 1, error.text);
    }
    return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "run %zu logged no losses: %s",
            run + 1,
            has_own_log(check->command)
                    ? "leave its --json-log out, or write --json-log {log}"
                    : "recps-train writes them where RECPS_JSON_LOG says; "
                      "another program finds the file's name in {log}");
}

static void
tell_run(const struct rps_check *check, size_t run, uint64_t began_ms)
{
    const struct rps_losses *losses = &check->runs[run];

    fprintf(stderr,
            "run %zu of %zu: steps %" PRIu64 " to %" PRIu64
            ", last loss %.9g, %.1f s\n",
            run + 1, check->times, losses->list[0].step,
            losses->list[losses->count - 1].step,
            losses->list[losses->count - 1].value,
            (double)(rps_clock_ms() - began_ms) / 1000.0);
}

static int
run_once(struct rps_check *check, size_t run)
{
    char *log = rps_format("%s/run-%zu.json", check->folder, run + 1);
    char *output = rps_format("%s/run-%zu.out", check->folder, run + 1);
    char **words = log != NULL ? fill_in_all(check->command, log, run) : NULL;
    struct showing showing = {.check = check,
            .log = log,
            .run = run,
            .began_ms = rps_clock_ms(),
            .terminal = isatty(STDERR_FILENO) != 0};
    struct rps_precision_child child = {.argv = words,
            .json_log = log,
            .output = output,
            .patience_ms = PATIENCE_MS,
            .tick = show,
            .context = &showing};
    int code;

    if (words == NULL || output == NULL) {
        code = rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    } else {
        rps_precision_child_run(&child);
        clear(&showing);
        code = judge_end(check, run, &child, words[0]);
    }
    if (code == RPS_TOOL_OK) {
        code = read_log(check, run, log);
    }
    if (code == RPS_TOOL_OK) {
        tell_run(check, run, showing.began_ms);
    }
    free_words(words);
    free(output);
    free(log);
    return code;
}

/* --- the whole -------------------------------------------------------------
 */

/* --keep's, which is made here, or one that goes away again. */
static int
make_folder(struct rps_check *check)
{
    const char *base = getenv("TMPDIR");

    if (check->keep != NULL) {
        check->folder = strdup(check->keep);
        if (check->folder != NULL && mkdir(check->folder, 0750) != 0) {
            return rps_tool_fail(RPS_TOOL_USAGE, TOOL, "--keep %s: %s",
                    check->keep, strerror(errno));
        }
    } else {
        check->folder = rps_format("%s/recps-check-XXXXXX",
                base != NULL && base[0] != '\0' ? base : "/tmp");
        if (check->folder != NULL && mkdtemp(check->folder) == NULL) {
            return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "%s: %s", check->folder,
                    strerror(errno));
        }
    }
    return check->folder != NULL
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
}

static int
read_flags(struct rps_check *check, const struct rps_tool_call *call)
{
    const char *times = call->flags[RPS_CHECK_TIMES].value;
    const char *tolerance = call->flags[RPS_CHECK_TOLERANCE].value;
    uint64_t number = TIMES_DEFAULT;

    check->exact = call->flags[RPS_CHECK_EXACT].value != NULL;
    check->keep = call->flags[RPS_CHECK_KEEP].value;
    check->csv = call->flags[RPS_CHECK_OUTPUT].value;
    check->json = call->options->json;
    check->command = call->command;
    check->tolerance = RPS_CHECK_TOLERANCE_DEFAULT;
    if (times != NULL && (!rps_parse_u64(times, &number) || number < 2 ||
                                 number > RPS_CHECK_TIMES_MAX)) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "--times %s: must be from 2 to %u", times, RPS_CHECK_TIMES_MAX);
    }
    check->times = (size_t)number;
    if (tolerance != NULL && (!rps_parse_double(tolerance, &check->tolerance) ||
                                     check->tolerance < 0)) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "--tolerance %s: must be a number from 0 on", tolerance);
    }
    if (call->command == NULL || call->command[0] == NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "give the training behind \"--\": recps " TOOL
                " -- recps-train …");
    }
    return RPS_TOOL_OK;
}

static void
finish(struct rps_check *check)
{
    for (size_t i = 0; i < RPS_CHECK_TIMES_MAX; i++) {
        rps_losses_finish(&check->runs[i]);
    }
    if (check->folder != NULL && check->keep == NULL) {
        (void)rps_dir_remove(check->folder, NULL);
    }
    free(check->folder);
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_check check = {.times = 0};
    int code = read_flags(&check, call);

    if (code == RPS_TOOL_OK) {
        code = make_folder(&check);
    }
    if (code == RPS_TOOL_OK) {
        rps_launch_extend_path();
    }
    for (size_t i = 0; i < check.times && code == RPS_TOOL_OK; i++) {
        code = run_once(&check, i);
    }
    if (code == RPS_TOOL_OK) {
        code = rps_check_answer(&check);
    }
    finish(&check);
    return code;
}

const struct rps_tool rps_tool_precision_check = {
        .name = TOOL,
        .usage = usage,
        .summary = "run a training several times: where do losses part",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .runs_command = true,
        .run = run,
};
