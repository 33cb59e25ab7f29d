/* SPDX-License-Identifier: Apache-2.0 */
/* recps erase: rows of a running job's table, by key. */
#include "client/cli/key.h"
#include "client/cli/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 31 /* of a key; the longest has 20 characters */

static const char usage[] =
        "usage: recps erase [--json] TABLE KEY... [OPTION]...\n"
        "       recps erase [--json] TABLE --file FILE [OPTION]...\n"
        "\n"
        "Erase the rows of these keys. A key is an unsigned or a negative\n"
        "decimal number, or 0x and hex digits. Absent keys are no error.\n"
        "\n"
        "  --file FILE   take the keys from this file, separated by blanks\n"
        "                or line ends; - is the standard input\n";

static struct rps_tool_flag flags[] = {
        {.name = "file", .has_value = true},
        {.name = NULL},
};

struct keys {
    uint64_t *list; /* owned */
    size_t count;
    size_t room;
};

static int
add_key(struct keys *keys, const char *word)
{
    uint64_t key = 0;

    if (!rps_key_parse(word, &key)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "erase",
                "\"%s\" is no key: a 64-bit number, decimal or 0x hex", word);
    }
    if (keys->count == keys->room) {
        const size_t room = keys->room == 0 ? 1024 : 2 * keys->room;
        uint64_t *list = realloc(keys->list, room * sizeof(*list));

        if (list == NULL) {
            return rps_tool_fail(RPS_TOOL_FAILED, "erase", "no memory");
        }
        keys->list = list;
        keys->room = room;
    }
    keys->list[keys->count++] = key;
    return RPS_TOOL_OK;
}

static int
read_keys(struct keys *keys, FILE *file, const char *path)
{
    char word[WORD_MAX + 1];
    int code = RPS_TOOL_OK;

    while (code == RPS_TOOL_OK && fscanf(file, "%31s", word) == 1) {
        code = add_key(keys, word);
    }
    if (code == RPS_TOOL_OK && ferror(file) != 0) {
        code = rps_tool_fail(RPS_TOOL_NOINPUT, "erase",
                "%s: cannot be read: "
                "%s",
                path, strerror(errno));
    }
    return code;
}

static int
read_file(struct keys *keys, const char *path)
{
    FILE *file;
    int code;

    if (strcmp(path, "-") == 0) {
        return read_keys(keys, stdin, "standard input");
    }
    file = fopen(path, "r");
    if (file == NULL) {
        return rps_tool_fail(
                RPS_TOOL_NOINPUT, "erase", "%s: %s", path, strerror(errno));
    }
    code = read_keys(keys, file, path);
    fclose(file);
    return code;
}

static int
collect(const struct rps_tool_call *call, struct keys *keys)
{
    const char *path = call->flags[0].value;
    int code = RPS_TOOL_OK;

    if (call->operand_count == 0 ||
            (call->operand_count == 1) == (path == NULL)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "erase",
                "give the table, and either keys or --file");
    }
    if (path != NULL) {
        return read_file(keys, path);
    }
    for (int i = 1; code == RPS_TOOL_OK && i < call->operand_count; i++) {
        code = add_key(keys, call->operands[i]);
    }
    return code;
}

static int
erase(const struct rps_tool_call *call, const struct keys *keys)
{
    const char *table = call->operands[0];
    rps_client *client = NULL;
    uint64_t erased = 0;
    int code = rps_tool_open(call, "erase", &client);

    if (code == RPS_TOOL_OK) {
        const rps_status status =
                rps_erase_rows(client, table, keys->count, keys->list, &erased);

        if (status != RPS_OK) {
            code = rps_tool_client_failed(client, "erase", status);
        } else if (call->options->json) {
            code = rps_tool_print_json(json_pack("{s:s, s:I, s:I}", "table",
                    table, "keys", (json_int_t)keys->count, "erased",
                    (json_int_t)erased));
        } else {
            printf("table %s: %" PRIu64 " rows erased (%zu keys)\n", table,
                    erased, keys->count);
        }
    }
    rps_client_close(client);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    struct keys keys = {.count = 0};
    int code = collect(call, &keys);

    if (code == RPS_TOOL_OK) {
        code = erase(call, &keys);
    }
    free(keys.list);
    return code;
}

const struct rps_tool rps_tool_erase = {
        .name = "erase",
        .usage = usage,
        .summary = "erase rows of a table by key",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_keys = true,
        .run = run,
};
