/* SPDX-License-Identifier: Apache-2.0 */
/* recps npu memory: a snapshot of a device's pool, drawn. */
#include "base/file.h"
#include "client/cli/memory_map.h"
#include "client/cli/tool.h"

#include <stdio.h>
#include <string.h>

#define SEGMENTS_DRAWN_MAX 100000u /* rows of a picture */

static const char usage[] =
        "usage: recps npu memory FILE [--svg FILE] [--json]\n"
        "\n"
        "Draw a snapshot of a simulated device's memory, which\n"
        "rps_npu_pool_snapshot() made: how much is allocated, waits for other\n"
        "streams, is a compiled step's or is free, and a bar for each "
        "segment.\n"
        "/dev/stdin reads a pipe.\n";

enum {
    FLAG_SVG
};

static struct rps_tool_flag flags[] = {
        {.name = "svg",
                .is_output = true,
                .argument = "FILE",
                .help = "draw a picture of it here, too"},
        {.name = NULL},
};

static rps_status
draw(const struct rps_memory_map *map, const char *path,
        struct rps_error *error)
{
    struct rps_text text = {.bytes = NULL};
    rps_status status;

    if (map->count > SEGMENTS_DRAWN_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "%zu segments: at most %u are drawn", map->count,
                SEGMENTS_DRAWN_MAX);
    }
    rps_memory_map_svg(map, &text);
    status = text.failed
                     ? rps_fail(error, RPS_E_NOMEM, "no memory for the picture")
                     : rps_file_replace(path, text.bytes, text.length, error);
    rps_text_finish(&text);
    return status;
}

static int
print_json(const struct rps_memory_map *map, const char *svg)
{
    json_t *answer = json_pack("{sIsIsIsIsIsIsfss?}", "device",
            (json_int_t)map->device, "capacity", (json_int_t)map->capacity,
            "reserved", (json_int_t)map->reserved, "segments",
            (json_int_t)map->count, "blocks", (json_int_t)map->block_count,
            "largest_free", (json_int_t)map->largest_free, "fragmentation",
            rps_memory_map_fragmentation(map), "svg", svg);

    for (int state = 0; answer != NULL && state < RPS_MAP_STATES; state++) {
        json_object_set_new(answer,
                rps_map_state_name((enum rps_map_state)state),
                json_integer((json_int_t)map->bytes[state]));
    }
    return rps_tool_print_json(answer);
}

static int
print_text(const struct rps_memory_map *map, const char *svg)
{
    if (!rps_memory_map_print(map)) {
        return rps_tool_fail(RPS_TOOL_FAILED, "npu", "no memory");
    }
    if (svg != NULL) {
        printf("\nwritten: %s\n", svg);
    }
    return RPS_TOOL_OK;
}

static int
show(const struct rps_tool_call *call, const struct rps_memory_map *map)
{
    const char *svg = call->flags[FLAG_SVG].value;
    struct rps_error error = {.text = ""};
    /* first: what is printed says that it was written */
    const rps_status status = svg != NULL ? draw(map, svg, &error) : RPS_OK;
    const char *written = status == RPS_OK ? svg : NULL;
    int code;

    if (status == RPS_E_LIMIT) {
        return rps_tool_fail(RPS_TOOL_FAILED, "npu", "--svg: %s", error.text);
    }
    code = call->options->json ? print_json(map, written)
                               : print_text(map, written);
    return status == RPS_OK
                   ? code
                   : rps_tool_fail_output("npu", "--svg", status, &error);
}

static int
run(const struct rps_tool_call *call)
{
    const char *svg = call->flags[FLAG_SVG].value;
    struct rps_memory_map map;
    struct rps_error error;
    rps_status status;
    int code;

    if (call->operand_count == 0 || strcmp(call->operands[0], "memory") != 0) {
        return rps_tool_fail(RPS_TOOL_USAGE, "npu", "say what to do: memory");
    }
    if (call->operand_count < 2 || call->operands[1][0] == '\0' ||
            (svg != NULL && svg[0] == '\0')) {
        return rps_tool_fail(RPS_TOOL_USAGE, "npu",
                "%sFILE is missing: recps npu memory FILE [--svg FILE]",
                svg != NULL && svg[0] == '\0' ? "--svg " : "");
    }
    status = rps_memory_map_read(&map, call->operands[1], &error);
    code = status == RPS_OK ? show(call, &map)
                            : rps_tool_fail_input("npu", status, &error);
    rps_memory_map_finish(&map);
    return code;
}

const struct rps_tool rps_tool_npu = {
        .name = "npu",
        .usage = usage,
        .summary = "draw the memory of a simulated device",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 2,
        .words = "memory",
        .takes_file = true,
        .run = run,
};
