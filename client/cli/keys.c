/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/keys.h"

#include "client/cli/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAPS " \t\r\n\v\f"

/* `where` is "" or "FILE:LINE: ". */
static int
add(struct rps_keys *keys, const char *tool, const char *where,
        const char *word)
{
    uint64_t key = 0;

    if (!rps_key_parse(word, &key)) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool,
                "%s\"%.40s\" is no key: a 64-bit number, decimal or 0x hex",
                where, word);
    }
    if (keys->count == keys->room) {
        const size_t room = keys->room == 0 ? 1024 : 2 * keys->room;
        uint64_t *list = realloc(keys->list, room * sizeof(*list));

        if (list == NULL) {
            return rps_tool_fail(RPS_TOOL_FAILED, tool, "no memory");
        }
        keys->list = list;
        keys->room = room;
    }
    keys->list[keys->count++] = key;
    return RPS_TOOL_OK;
}

static int
read_words(
        struct rps_keys *keys, const char *tool, FILE *file, const char *path)
{
    unsigned long number = 0;
    char *line = NULL;
    size_t bytes = 0;
    int code = RPS_TOOL_OK;

    while (code == RPS_TOOL_OK && getline(&line, &bytes, file) >= 0) {
        char where[256];
        char *next = NULL;

        snprintf(where, sizeof(where), "%.200s:%lu: ", path, ++number);
        for (char *word = strtok_r(line, GAPS, &next);
                code == RPS_TOOL_OK && word != NULL;
                word = strtok_r(NULL, GAPS, &next)) {
            code = add(keys, tool, where, word);
        }
    }
    free(line);
    if (code == RPS_TOOL_OK && ferror(file) != 0) {
        code = rps_tool_fail(RPS_TOOL_NOINPUT, tool, "%s: cannot be read: %s",
                path, strerror(errno));
    }
    return code;
}

static int
read_file(struct rps_keys *keys, const char *tool, const char *path)
{
    FILE *file;
    int code;

    if (strcmp(path, "-") == 0) {
        return read_words(keys, tool, stdin, "standard input");
    }
    file = fopen(path, "re");
    if (file == NULL) {
        return rps_tool_fail(
                RPS_TOOL_NOINPUT, tool, "%s: %s", path, strerror(errno));
    }
    code = read_words(keys, tool, file, path);
    fclose(file);
    return code;
}

int
rps_keys_collect(struct rps_keys *keys, const struct rps_tool_call *call,
        const char *tool)
{
    const char *path = call->flags[0].value;
    int code = RPS_TOOL_OK;

    if (call->operand_count == 0 ||
            (call->operand_count == 1) == (path == NULL)) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool,
                "give the table, and either keys or --file");
    }
    if (path != NULL) {
        return read_file(keys, tool, path);
    }
    for (int i = 1; code == RPS_TOOL_OK && i < call->operand_count; i++) {
        code = add(keys, tool, "", call->operands[i]);
    }
    return code;
}

void
rps_keys_finish(struct rps_keys *keys)
{
    free(keys->list);
    *keys = (struct rps_keys){.count = 0};
}
