/* SPDX-License-Identifier: Apache-2.0 */
/* recps save: asks the job's chief for a checkpoint and waits for it. */
#include "base/clock.h"
#include "base/text.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS  100u /* at first; then longer, up to */
#define LOOKS_MS 1000u

static const char usage[] =
        "usage: recps save [--no-wait] [--json] [OPTION]...\n"
        "\n"
        "Ask the job's chief to save a checkpoint, and wait until it is there\n"
        "or has failed. The chief begins at the end of a step, when a save\n"
        "that runs is over. An error says so when no chief is connected.\n";

static struct rps_tool_flag flags[] = {
        {.name = "no-wait", .help = "ask, and do not wait for the checkpoint"},
        {.name = NULL},
};

/** What PS 0 says of saves. */
struct look {
    uint64_t cuts;
    uint64_t saved_cut;
    uint64_t failures;
    uint64_t failed_cut;
    uint64_t step; /* of the one in hand */
    char phase[16];
    bool chief;
    json_t *save; /* the whole of it; owned */
};

static uint64_t
number(const json_t *object, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

static void
look_finish(struct look *look)
{
    json_decref(look->save);
    *look = (struct look){.phase = ""};
}

static void
read_look(struct look *look, const json_t *stat)
{
    json_t *save = json_object_get(stat, "save");
    const char *phase = json_string_value(json_object_get(save, "phase"));
    const json_t *chief = json_array_get(json_object_get(stat, "members"), 0);

    look->save = json_incref(save);
    look->cuts = number(save, "cuts");
    look->saved_cut = number(save, "saved_cut");
    look->failures = number(save, "failures");
    look->failed_cut = number(json_object_get(save, "failed"), "cut");
    look->step = number(save, "step");
    look->chief = json_is_true(json_object_get(chief, "connected"));
    (void)snprintf(
            look->phase, sizeof(look->phase), "%s", phase != NULL ? phase : "");
}

static int
look_at(rps_client *client, struct look *look)
{
    char *text = NULL;
    json_t *stat;
    rps_status status = rps_stat(client, 0, &text);

    look_finish(look);
    if (status != RPS_OK) {
        return rps_tool_client_failed(client, "save", status);
    }
    stat = json_loads(text, 0, NULL);
    free(text);
    read_look(look, stat);
    json_decref(stat);
    return look->save != NULL
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_FAILED, "save",
                             "PS 0 does not say how far a save is: it is of "
                             "an older version; give --no-wait");
}

static int
print_saved(const struct rps_tool_call *call, const struct look *look)
{
    json_t *last = json_object_get(look->save, "last");
    char size[32];

    if (call->options->json) {
        json_t *object = json_deep_copy(last);

        if (object != NULL) {
            (void)json_object_set_new(object, "done", json_string("save"));
        }
        return rps_tool_print_json(object);
    }
    printf("saved step %" PRIu64 ": %s, %s at PS 0, in %.1f s\n",
            number(last, "step"),
            json_string_value(json_object_get(last, "kind")),
            rps_format_bytes(number(last, "bytes"), size),
            (double)number(last, "us") / 1e6);
    return RPS_TOOL_OK;
}

static int
say_failed(const struct look *look)
{
    const json_t *failed = json_object_get(look->save, "failed");
    const char *why = json_string_value(json_object_get(failed, "why"));

    return rps_tool_fail(RPS_TOOL_FAILED, "save",
            "step %" PRIu64 " is not saved: %s", number(failed, "step"),
            why != NULL ? why : "no reason is given");
}

/* On a terminal alone: what it is at. */
static void
tell_progress(const struct look *look, const struct look *before, char *told,
        size_t told_bytes)
{
    char line[128];
    char size[32];

    if (look->cuts <= before->cuts) {
        (void)snprintf(line, sizeof(line), "%s",
                strcmp(look->phase, "none") == 0
                        ? "the chief was asked; it saves at the end of a step"
                        : "a save runs; the next one begins after it");
    } else {
        (void)snprintf(line, sizeof(line),
                "step %" PRIu64 ": %s; %s of the save buffer in use",
                look->step, look->phase,
                rps_format_bytes(number(look->save, "buffer_bytes"), size));
    }
    if (isatty(STDERR_FILENO) && strcmp(line, told) != 0) {
        fprintf(stderr, "%s\n", line);
    }
    (void)snprintf(told, told_bytes, "%s", line);
}

static void
sleep_ms(uint32_t ms)
{
    const struct timespec wait = {
            .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&wait, NULL);
}

/* A cut that was taken after the wish: saved, failed, or nobody is left. */
static int
wait_saved(const struct rps_tool_call *call, rps_client *client,
        const struct look *before, struct look *look)
{
    char told[128] = "";
    uint32_t ms = LOOK_MS;
    int code = look_at(client, look);

    while (code == RPS_TOOL_OK) {
        if (look->saved_cut > before->cuts) {
            return print_saved(call, look);
        }
        if (look->failures > before->failures &&
                look->failed_cut > before->cuts) {
            return say_failed(look);
        }
        if (!look->chief) {
            return rps_tool_fail(RPS_TOOL_FAILED, "save",
                    "the chief has left before it saved");
        }
        tell_progress(look, before, told, sizeof(told));
        sleep_ms(ms);
        ms = ms * 2 < LOOKS_MS ? ms * 2 : LOOKS_MS;
        code = look_at(client, look);
    }
    return code;
}

static int
say_asked(const struct rps_tool_call *call)
{
    if (call->options->json) {
        return rps_tool_print_json(json_pack("{s:s}", "done", "save"));
    }
    printf("the chief was asked to save; it will at the end of a step\n");
    return RPS_TOOL_OK;
}

static int
ask(const struct rps_tool_call *call, rps_client *client)
{
    const bool waits = call->flags[0].value == NULL;
    struct look before = {.phase = ""};
    struct look look = {.phase = ""};
    int code = waits ? look_at(client, &before) : RPS_TOOL_OK;
    rps_status status;

    if (code == RPS_TOOL_OK) {
        status = rps_wish(client, RPS_WISH_SAVE);
        code = status == RPS_OK
                       ? RPS_TOOL_OK
                       : rps_tool_client_failed(client, "save", status);
    }
    if (code == RPS_TOOL_OK) {
        code = waits ? wait_saved(call, client, &before, &look)
                     : say_asked(call);
    }
    look_finish(&before);
    look_finish(&look);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    rps_client *client = NULL;
    int code = rps_tool_open(call, "save", &client);

    if (code == RPS_TOOL_OK) {
        code = ask(call, client);
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_save = {
        .name = "save",
        .usage = usage,
        .summary = "have the chief save a checkpoint",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
