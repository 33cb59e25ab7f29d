/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every subcommand, once. `recps --help`, the shells' completion and the
 * manual page are made of this list and of what each says of itself.
 */
#include "base/text.h"
#include "client/cli/tool.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define FLAG_WIDTH 79u
#define TOOLS_MAX  64u

const struct rps_tool *const rps_tools[] = {
        &rps_tool_launch,
        &rps_tool_top,
        &rps_tool_tables,
        &rps_tool_stats,
        &rps_tool_ping,
        &rps_tool_hot,
        &rps_tool_lookup,
        &rps_tool_scan,
        &rps_tool_assign,
        &rps_tool_alter,
        &rps_tool_evict,
        &rps_tool_erase,
        &rps_tool_drop,
        &rps_tool_restore,
        &rps_tool_save,
        &rps_tool_verify,
        &rps_tool_digest,
        &rps_tool_inspect,
        &rps_tool_diff,
        &rps_tool_export,
        &rps_tool_import,
        &rps_tool_compact,
        &rps_tool_reshard,
        &rps_tool_gather,
        &rps_tool_archive,
        &rps_tool_unarchive,
        &rps_tool_prune,
        &rps_tool_profile,
        &rps_tool_precision,
        &rps_tool_ranktable,
        &rps_tool_npu,
        &rps_tool_log_level,
        &rps_tool_shutdown,
};

const size_t rps_tool_count = sizeof(rps_tools) / sizeof(rps_tools[0]);

const char *
rps_tool_word(const struct rps_tool *tool)
{
    const char *blank = strrchr(tool->name, ' ');

    return blank != NULL ? blank + 1 : tool->name;
}

const struct rps_tool *
rps_tool_find(const struct rps_tool *const *tools, size_t count,
        const char *word, const char **near_out)
{
    const char *names[TOOLS_MAX];

    assert(count <= TOOLS_MAX);
    *near_out = NULL;
    for (size_t i = 0; i < count; i++) {
        names[i] = rps_tool_word(tools[i]);
        if (strcmp(word, names[i]) == 0) {
            return tools[i];
        }
    }
    *near_out = rps_nearest_name(word, names, count);
    return NULL;
}

size_t
rps_tool_part_count(const struct rps_tool *tool)
{
    size_t count = 0;

    while (tool->parts != NULL && tool->parts[count] != NULL) {
        count++;
    }
    return count;
}

/* "  --max N   so many keys at most", the words wrapped at their column; a
 * letter stands behind: "  --output FILE, -o". */
static void
add_flag(struct rps_text *text, const struct rps_tool_flag *flag, size_t column)
{
    const char *words = flag->help;
    const size_t begun = text->length;
    size_t at;

    rps_text_add(text, "  --%s%s%s", flag->name,
            flag->argument != NULL ? " " : "",
            flag->argument != NULL ? flag->argument : "");
    if (flag->letter != NULL) {
        rps_text_add(text, ", -%s", flag->letter);
    }
    at = text->length - begun;
    rps_text_add(text, "%*s", at < column ? (int)(column - at) : 0, "");
    at = column;
    while (*words != '\0') {
        const size_t length = strcspn(words, " ");

        if (at > column && at + 1 + length > FLAG_WIDTH) {
            rps_text_add(text, "\n%*s", (int)column, "");
            at = column;
        }
        if (at > column) {
            rps_text_add_bytes(text, " ", 1);
            at++;
        }
        rps_text_add_bytes(text, words, length);
        at += length;
        words += length;
        words += strspn(words, " ");
    }
    rps_text_add_bytes(text, "\n", 1);
}

static size_t
widest(const struct rps_tool_flag *flags)
{
    size_t most = 0;

    for (; flags->name != NULL; flags++) {
        const size_t width =
                strlen(flags->name) +
                (flags->argument != NULL ? 1 + strlen(flags->argument) : 0) +
                (flags->letter != NULL ? 3 + strlen(flags->letter) : 0);

        most = width > most ? width : most;
    }
    return most;
}

char *
rps_tool_usage(const struct rps_tool *tool)
{
    struct rps_text text = {.bytes = NULL};

    rps_text_add(&text, "%s", tool->usage);
    if (tool->parts != NULL) {
        rps_text_add_bytes(&text, "\n", 1);
        for (size_t i = 0; i < rps_tool_part_count(tool); i++) {
            rps_text_add(&text, "  %-19s %s\n", rps_tool_word(tool->parts[i]),
                    tool->parts[i]->summary);
        }
    }
    if (tool->flags != NULL) {
        const size_t column = widest(tool->flags) + strlen("  --   ");

        rps_text_add_bytes(&text, "\n", 1);
        for (const struct rps_tool_flag *flag = tool->flags; flag->name != NULL;
                flag++) {
            add_flag(&text, flag, column);
        }
    }
    if (text.failed) {
        rps_text_finish(&text);
    }
    return text.bytes;
}
