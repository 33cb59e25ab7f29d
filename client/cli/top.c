/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps top: what the servers are doing, again and again. This file looks at
 * them and keeps at it where one is gone; top_figures.c has what two looks
 * say, top_screen.c how it is shown, top_terminal.c the terminal.
 */
#include "base/clock.h"
#include "base/text.h"
#include "client/cli/tool.h"
#include "client/cli/top_figures.h"
#include "client/cli/top_screen.h"
#include "client/cli/top_terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INTERVAL_S     1.0
#define INTERVAL_S_MIN 0.1
#define INTERVAL_S_MAX 3600.0
#define AGAIN_MS       300u  /* of a try to reach who is gone */
#define ANSWER_MS      3000u /* longer than that it is silent */
#define HOT_SHOWN      8u

static const char usage[] =
        "usage: recps top [--once] [--json] [OPTION]...\n"
        "\n"
        "Watch a running job: of each server what it looks up and updates a\n"
        "second, how long requests take (half of the lookups, 99 of 100),\n"
        "connections and memory against its limit; of each table its size and\n"
        "its rates; and the keys that are pushed most. q ends it. Where the\n"
        "output is no terminal, a frame follows the other as text; --json\n"
        "prints one object a line.\n";

enum {
    FLAG_ONCE,
    FLAG_INTERVAL,
    FLAG_COUNT,
    FLAG_TABLE,
    FLAG_WORKERS
};

static struct rps_tool_flag flags[] = {
        [FLAG_ONCE] = {.name = "once", .help = "one frame, then end"},
        [FLAG_INTERVAL] = {.name = "interval",
                .argument = "SECONDS",
                .help = "between two looks, 0.1 to 3600 (1)"},
        [FLAG_COUNT] = {.name = "count",
                .argument = "N",
                .help = "end after so many frames; 0: never (0)"},
        [FLAG_TABLE] = {.name = "table",
                .argument = "TABLE",
                .help = "whose hot keys are shown (the one with the most "
                        "updates)"},
        [FLAG_WORKERS] = {.name = "workers",
                .argument = "WHERE",
                .help = "show what workers with --admin do, too: HOST:PORT,... "
                        "of them, or entry: each at its entry of the cluster"},
        {.name = NULL},
};

struct watch {
    const struct rps_tool_call *call;
    const rps_cluster *cluster;
    rps_client_options settings;
    rps_client *client;
    bool is_broken; /* a server is gone: open another client */
    struct rps_top_look *before;
    struct rps_top_look *now;
    uint32_t ps_count;
    double interval_s;
    struct rps_top_workers workers;
    bool asks_workers;
    uint64_t frames_left; /* 0: no end */
    bool is_screen;
};

/* ---- looking ---- */

static void
note_failure(struct watch *watch, struct rps_top_look *look, rps_status status)
{
    snprintf(look->why, sizeof(look->why), "%s (%s)",
            rps_client_error(watch->client), rps_status_str(status));
    watch->is_broken = watch->is_broken || status != RPS_E_TIMEOUT;
}

static void
look_at(struct watch *watch, uint32_t ps, struct rps_top_look *look)
{
    const uint64_t begun = rps_clock_ns();
    char *text = NULL;
    rps_status status = rps_ping(watch->client, ps, NULL);

    look->ping_ms = (double)(rps_clock_ns() - begun) / 1e6;
    if (status == RPS_OK) {
        status = rps_stat_times(watch->client, ps, &text);
    }
    look->at_ns = rps_clock_ns();
    look->stat = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (status != RPS_OK) {
        note_failure(watch, look, status);
    } else if (!json_is_object(look->stat)) {
        json_decref(look->stat);
        look->stat = NULL;
        snprintf(look->why, sizeof(look->why), "its answer is no JSON object");
    }
}

/* A client stays failed where a server is gone; the old one still reaches the
 * others, so it is kept until a new one reaches all. */
static void
open_again(struct watch *watch)
{
    rps_client *fresh = NULL;

    watch->settings.connect_timeout_ms = AGAIN_MS;
    if (rps_client_open(&fresh, &watch->settings) == RPS_OK) {
        rps_client_close(watch->client);
        watch->client = fresh;
        watch->is_broken = false;
    }
}

/* The look before is the last one that had an answer. */
static void
look_at_all(struct watch *watch)
{
    for (uint32_t ps = 0; ps < watch->ps_count; ps++) {
        if (watch->now[ps].stat != NULL) {
            rps_top_look_finish(&watch->before[ps]);
            watch->before[ps] = watch->now[ps];
        }
        watch->now[ps] = (struct rps_top_look){.stat = NULL};
    }
    if (watch->is_broken) {
        open_again(watch);
    }
    for (uint32_t ps = 0; ps < watch->ps_count; ps++) {
        look_at(watch, ps, &watch->now[ps]);
    }
    rps_top_workers_look(&watch->workers);
}

/* ---- hot keys ---- */

static const char *
busiest(const struct rps_top *top)
{
    const struct rps_top_table *best = NULL;

    for (size_t i = 0; i < top->table_count; i++) {
        const struct rps_top_table *table = &top->tables[i];
        const double updates =
                isnan(table->rates.updates) ? 0 : table->rates.updates;
        const double most = best == NULL || isnan(best->rates.updates)
                                    ? 0
                                    : best->rates.updates;

        if (best == NULL || updates > most ||
                (updates == most && table->rows > best->rows)) {
            best = table;
        }
    }
    return best != NULL ? best->name : NULL;
}

/* Fails where the table that was asked for is not there, or not yet. */
static rps_status
find_hot(struct watch *watch, struct rps_top *top)
{
    const char *wanted = watch->call->flags[FLAG_TABLE].value;
    rps_status status;
    bool no_table;

    top->hot_table = wanted != NULL ? wanted : busiest(top);
    if (top->hot_table == NULL || watch->is_broken) {
        return RPS_OK;
    }
    status = rps_hot_keys(watch->client, top->hot_table, HOT_SHOWN, top->hot,
            &top->hot_count);
    if (status != RPS_OK) {
        top->hot_count = 0;
        no_table = status == RPS_E_NOT_FOUND || status == RPS_E_INVAL;
        /* of a later epoch than this client's: another one has it */
        watch->is_broken = !no_table;
        return no_table && wanted != NULL ? status : RPS_OK;
    }
    return RPS_OK;
}

/* ---- showing ---- */

static void
add_head(struct rps_text *head, const struct watch *watch,
        const struct rps_top *top)
{
    const time_t now = time(NULL);
    struct tm local;
    char clock[16] = "";

    if (localtime_r(&now, &local) != NULL) {
        strftime(clock, sizeof(clock), "%H:%M:%S", &local);
    }
    rps_text_add(head, "  %s  %" PRIu32 " server%s", clock, top->ps_count,
            top->ps_count == 1 ? "" : "s");
    if (top->ps_count > 0 && top->ps[0].mode != NULL) {
        rps_text_add(head, "  epoch %" PRIu64 "  step %" PRIu64 "  %s",
                top->ps[0].epoch, top->ps[0].step, top->ps[0].mode);
    }
    rps_text_add(head, "  every %g s%s", watch->interval_s,
            watch->is_screen ? "  q ends" : "");
}

static bool
draw(const struct watch *watch, const struct rps_top *top)
{
    const struct rps_terminal_size size = rps_terminal_size();
    struct rps_text head = {.bytes = NULL};
    struct rps_text text = {.bytes = NULL};
    struct rps_top_form form = {.ansi = watch->is_screen};
    bool good;

    add_head(&head, watch, top);
    form.head = head.bytes != NULL ? head.bytes : "";
    if (watch->is_screen) {
        form.columns = size.columns;
        form.lines = size.lines;
    }
    rps_top_draw(&text, top, watch->cluster, &form);
    if (!watch->is_screen) {
        rps_text_add(&text, "\n"); /* frames stand apart */
    }
    good = !text.failed &&
           fwrite(text.bytes, 1, text.length, stdout) == text.length &&
           rps_tool_flush();
    rps_text_finish(&head);
    rps_text_finish(&text);
    return good;
}

static bool
show(const struct watch *watch, const struct rps_top *top)
{
    if (watch->call->options->json) {
        return rps_tool_print_json(rps_top_json(top, watch->cluster)) ==
               RPS_TOOL_OK;
    }
    return draw(watch, top);
}

/* Until the next look; false: it was asked to end. A new size draws anew. */
static bool
rest(const struct watch *watch, const struct rps_top *top)
{
    const uint64_t end = rps_clock_ms() + (uint64_t)(watch->interval_s * 1e3);
    uint64_t now;

    while ((now = rps_clock_ms()) < end) {
        const int key = rps_terminal_key((uint32_t)(end - now));

        if (key == 'q' || key == 'Q' || key < 0) {
            return false;
        }
        if (key == ' ') {
            return true;
        }
        if (watch->is_screen && rps_clock_ms() < end && top != NULL) {
            (void)draw(watch, top);
        }
    }
    return true;
}

/* ---- the loop ---- */

static bool
any_missing(const struct rps_top *top)
{
    bool missing = false;

    for (uint32_t i = 0; i < top->ps_count; i++) {
        missing = missing || !top->ps[i].here;
    }
    for (size_t i = 0; top->workers != NULL && i < top->workers->count; i++) {
        missing = missing || !top->workers->list[i].here;
    }
    return missing;
}

/* The last frame's answer is the command's: a table that is not there is an
 * error then, while a watch may wait for it. */
static int
show_with_hot(struct watch *watch, struct rps_top *top)
{
    const rps_status status = find_hot(watch, top);

    if (status != RPS_OK && watch->frames_left == 1) {
        return rps_tool_client_failed(watch->client, "top", status);
    }
    if (show(watch, top)) {
        return RPS_TOOL_OK;
    }
    return rps_tool_flush() ? rps_tool_fail(RPS_TOOL_FAILED, "top", "no memory")
                            : RPS_TOOL_IO;
}

/* One look, shown; *go_on_out: another is to follow. */
static int
turn(struct watch *watch, bool *go_on_out)
{
    struct rps_top top;
    bool good;
    int code = RPS_TOOL_OK;

    look_at_all(watch);
    good = rps_top_work_out(
            &top, watch->before, watch->now, watch->ps_count, rps_clock_ns());
    if (!good) {
        code = rps_tool_fail(RPS_TOOL_FAILED, "top", "no memory");
    } else {
        top.workers = watch->asks_workers ? &watch->workers : NULL;
        code = show_with_hot(watch, &top);
        good = code == RPS_TOOL_OK;
    }
    if (good && watch->frames_left == 1 && any_missing(&top)) {
        code = RPS_TOOL_UNAVAILABLE;
    }
    *go_on_out = good && watch->frames_left != 1 && rest(watch, &top);
    watch->frames_left -= watch->frames_left > 0;
    rps_top_finish(&top);
    return code;
}

static int
watch_on(struct watch *watch)
{
    bool go_on = true;
    int code = RPS_TOOL_OK;

    if (watch->frames_left == 1) { /* one frame has rates, too */
        look_at_all(watch);
        go_on = rest(watch, NULL);
    }
    while (code == RPS_TOOL_OK && go_on) {
        code = turn(watch, &go_on);
    }
    return code;
}

static int
begin(struct watch *watch)
{
    struct rps_error error = {.text = ""};
    rps_status status;
    int code = rps_tool_settings(watch->call, "top", &watch->settings);

    if (code != RPS_TOOL_OK) {
        return code;
    }
    if (watch->asks_workers && rps_top_workers_init(&watch->workers,
                                       watch->call->flags[FLAG_WORKERS].value,
                                       watch->cluster, &error) != RPS_OK) {
        return rps_tool_fail(RPS_TOOL_USAGE, "top", "--workers %s: %s",
                watch->call->flags[FLAG_WORKERS].value, error.text);
    }
    watch->ps_count = watch->cluster->ps_count;
    watch->before = calloc(watch->ps_count, sizeof(*watch->before));
    watch->now = calloc(watch->ps_count, sizeof(*watch->now));
    if (watch->before == NULL || watch->now == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "top", "no memory");
    }
    watch->settings.request_timeout_ms = ANSWER_MS;
    status = rps_client_open(&watch->client, &watch->settings);
    if (status != RPS_OK) {
        return rps_tool_client_failed(NULL, "top", status);
    }
    watch->settings.report = NULL; /* it would write over the screen */
    if (watch->is_screen && !rps_terminal_begin()) {
        watch->is_screen = false;
    }
    return RPS_TOOL_OK;
}

static void
end(struct watch *watch)
{
    rps_terminal_end();
    for (uint32_t ps = 0; ps < watch->ps_count; ps++) {
        if (watch->before != NULL) {
            rps_top_look_finish(&watch->before[ps]);
        }
        if (watch->now != NULL) {
            rps_top_look_finish(&watch->now[ps]);
        }
    }
    free(watch->before);
    free(watch->now);
    rps_top_workers_finish(&watch->workers);
    rps_client_close(watch->client);
}

static int
read_flags(struct watch *watch)
{
    const struct rps_tool_flag *own = watch->call->flags;
    const char *interval = own[FLAG_INTERVAL].value;
    const char *count = own[FLAG_COUNT].value;

    watch->asks_workers = own[FLAG_WORKERS].value != NULL;
    watch->interval_s = INTERVAL_S;
    if (interval != NULL &&
            (!rps_parse_double(interval, &watch->interval_s) ||
                    !(watch->interval_s >= INTERVAL_S_MIN &&
                            watch->interval_s <= INTERVAL_S_MAX))) {
        return rps_tool_fail(RPS_TOOL_USAGE, "top",
                "--interval is \"%s\"; 0.1 to 3600 seconds are allowed",
                interval);
    }
    if (count != NULL && !rps_parse_u64(count, &watch->frames_left)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "top",
                "--count is \"%s\"; a number of frames is allowed", count);
    }
    if (own[FLAG_ONCE].value != NULL && count != NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, "top",
                "--once is --count 1: leave one of them out");
    }
    watch->frames_left = own[FLAG_ONCE].value != NULL ? 1 : watch->frames_left;
    return RPS_TOOL_OK;
}

static int
run(const struct rps_tool_call *call)
{
    struct watch watch = {.call = call, .cluster = &call->options->cluster};
    int code = read_flags(&watch);

    watch.is_screen = !call->options->json &&
                      call->flags[FLAG_ONCE].value == NULL &&
                      rps_terminal_is_there();
    if (code == RPS_TOOL_OK) {
        code = begin(&watch);
    }
    if (code == RPS_TOOL_OK) {
        code = watch_on(&watch);
    }
    end(&watch);
    return code;
}

const struct rps_tool rps_tool_top = {
        .name = "top",
        .usage = usage,
        .summary = "watch a running job: rates, times, memory, hot keys",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
