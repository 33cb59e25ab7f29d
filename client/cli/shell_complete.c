/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/shell_complete.h"

#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/precision_guide.h"
#include "client/cli/shell_words.h"
#include "client/precision/read.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 10000u

const char *const rps_shell_own_words[] = {"help", "exit", "quit", NULL};

struct completer {
    const struct rps_tool *const *commands;
    const struct rps_shell_words *words;
    const char *prefix; /* of the word that is typed; "": not begun */
    size_t place;       /* which word of the line it is */
    struct rps_shell_completion *completion;
};

/* --- candidates ------------------------------------------------------------
 */

/* Takes `word`, which may be NULL. */
static void
add(struct completer *completer, char *word)
{
    struct rps_shell_completion *completion = completer->completion;

    if (word == NULL || completion->count >= WORDS_MAX ||
            strncmp(word, completer->prefix, strlen(completer->prefix)) != 0) {
        free(word);
        return;
    }
    if (completion->count == completion->capacity) {
        const size_t capacity =
                completion->capacity > 0 ? 2 * completion->capacity : 16;
        char **words = realloc(completion->words, capacity * sizeof(*words));

        if (words == NULL) {
            free(word);
            return;
        }
        completion->words = words;
        completion->capacity = capacity;
    }
    completion->words[completion->count++] = word;
}

static void
add_commands(struct completer *completer)
{
    for (size_t i = 0; completer->commands[i] != NULL; i++) {
        add(completer, strdup(rps_tool_word(completer->commands[i])));
    }
}

static void
add_flags(struct completer *completer, const struct rps_tool *tool)
{
    for (const struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL; flag++) {
        add(completer, rps_format("--%s", flag->name));
        if (flag->letter != NULL) {
            add(completer, rps_format("-%s", flag->letter));
        }
    }
    add(completer, strdup("--json"));
    add(completer, strdup("--help"));
}

/* --- paths -----------------------------------------------------------------
 */

static bool
is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* begin: what stands before the name, with its slash. */
static void
add_paths(struct completer *completer, const char *folder, const char *begin,
        const char *ending)
{
    DIR *dir = opendir(folder);
    const char *slash = strrchr(completer->prefix, '/');
    const char *typed = slash != NULL ? slash + 1 : completer->prefix;
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        char *path = rps_format("%s/%s", folder, name);
        const bool folders = path != NULL && is_folder(path);
        const size_t length = strlen(name);

        free(path);
        if ((name[0] == '.' && typed[0] != '.') || strcmp(name, ".") == 0 ||
                strcmp(name, "..") == 0 ||
                (ending != NULL &&
                        (length < strlen(ending) ||
                                strcmp(name + length - strlen(ending),
                                        ending) != 0))) {
            continue;
        }
        add(completer, rps_format("%s%s%s", begin, name, folders ? "/" : ""));
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void
add_files(struct completer *completer)
{
    const char *slash = strrchr(completer->prefix, '/');
    char *begin = slash != NULL
                          ? strndup(completer->prefix,
                                    (size_t)(slash - completer->prefix) + 1)
                          : strdup("");

    if (begin != NULL) {
        add_paths(completer, begin[0] != '\0' ? begin : ".", begin, NULL);
    }
    free(begin);
}

/* --- what the line says ----------------------------------------------------
 */

/* The value of a flag of the line before the word that is typed; NULL: it is
 * not there. */
static const char *
value_of(
        const struct completer *completer, const char *name, const char *letter)
{
    for (size_t i = 1; i + 1 < completer->place; i++) {
        const char *word = completer->words->words[i];

        if (word[0] == '-' &&
                (strcmp(word + 1, letter) == 0 ||
                        (word[1] == '-' && strcmp(word + 2, name) == 0))) {
            return completer->words->words[i + 1];
        }
    }
    return NULL;
}

static char *
dump_of(const struct completer *completer)
{
    const char *given = value_of(completer, "left", "lt");
    const char *folder = value_of(completer, "folder", "");
    char *path;

    if (given != NULL) {
        return strdup(given);
    }
    path = rps_guide_path(folder, RPS_GUIDE_DEBUG_0);
    if (path != NULL && access(path, F_OK) != 0) {
        free(path);
        path = rps_guide_path(folder, RPS_GUIDE_TF);
    }
    return path;
}

/* Its name, where no operator of another type is called so; else as a file
 * has it. */
static char *
operator_word(const struct rps_dumped *dumped, uint32_t index)
{
    const struct rps_dumped_operator *op = &dumped->operators[index];

    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *other = &dumped->operators[i];

        if (strcmp(other->name, op->name) == 0 &&
                strcmp(other->type, op->type) != 0) {
            return rps_dumped_file_name(op);
        }
    }
    return strdup(op->name);
}

static void
add_operators(struct completer *completer)
{
    struct rps_dumped_steps steps = {.count = 0};
    struct rps_dumped *dumped = NULL;
    char *path = dump_of(completer);

    if (path != NULL &&
            rps_dumped_find_model(path, value_of(completer, "graph", "g"),
                    &steps, NULL) == RPS_OK &&
            rps_dumped_open(steps.folders[0], &dumped, NULL) == RPS_OK) {
        for (uint32_t i = 0; i < dumped->operator_count; i++) {
            if (dumped->operators[i].occurrence == 0) {
                add(completer, operator_word(dumped, i));
            }
        }
    }
    rps_dumped_close(dumped);
    rps_dumped_steps_free(&steps);
    free(path);
}

static void
add_results(struct completer *completer)
{
    char *folder = rps_guide_path(
            value_of(completer, "folder", ""), RPS_GUIDE_RESULTS);

    if (folder != NULL && strchr(completer->prefix, '/') == NULL) {
        add_paths(completer, folder, "", ".csv");
    }
    free(folder);
}

/* A flag's value, by what it is called. */
static void
add_values(struct completer *completer, const struct rps_tool *tool,
        const struct rps_tool_flag *flag)
{
    if (strcmp(flag->argument, "OP") == 0 ||
            strcmp(flag->name, "operator") == 0) {
        add_operators(completer);
    } else if (strcmp(flag->argument, "DIR") == 0) {
        add_files(completer);
    } else if (strcmp(flag->argument, "FILE") == 0) {
        if (tool == &rps_tool_precision_vcs) {
            add_results(completer);
        }
        add_files(completer);
    }
}

/* The flag whose value the word is; NULL: it is none. */
static const struct rps_tool_flag *
flag_before(const struct completer *completer, const struct rps_tool *tool)
{
    const char *word = completer->words->words[completer->place - 1];

    for (const struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL && word[0] == '-'; flag++) {
        const bool is_it =
                (word[1] == '-' && strcmp(word + 2, flag->name) == 0) ||
                (flag->letter != NULL && strcmp(word + 1, flag->letter) == 0);

        if (is_it && flag->argument != NULL) {
            return flag;
        }
    }
    return NULL;
}

static void
add_arguments(struct completer *completer, const struct rps_tool *tool)
{
    const struct rps_tool_flag *flag = flag_before(completer, tool);

    if (flag != NULL) {
        add_values(completer, tool, flag);
    } else if (completer->prefix[0] == '-') {
        add_flags(completer, tool);
    } else if (tool == &rps_tool_precision_ni) {
        add_operators(completer);
    } else if (tool->operands_max > 0 || tool->runs_command) {
        add_files(completer);
    }
}

static void
add_all(struct completer *completer)
{
    const char *near = NULL;
    const struct rps_tool *tool = NULL;
    size_t count = 0;

    if (completer->place == 0) {
        add_commands(completer);
        for (size_t i = 0; rps_shell_own_words[i] != NULL; i++) {
            add(completer, strdup(rps_shell_own_words[i]));
        }
        return;
    }
    if (strcmp(completer->words->words[0], rps_shell_own_words[0]) == 0) {
        add_commands(completer);
        return;
    }
    while (completer->commands[count] != NULL) {
        count++;
    }
    tool = rps_tool_find(
            completer->commands, count, completer->words->words[0], &near);
    if (tool != NULL) {
        add_arguments(completer, tool);
    }
}

/* --- what follows ----------------------------------------------------------
 */

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void
sort(struct rps_shell_completion *completion)
{
    size_t kept = 0;

    if (completion->count > 1) {
        qsort(completion->words, completion->count, sizeof(char *), by_text);
    }
    for (size_t i = 0; i < completion->count; i++) {
        if (kept > 0 && strcmp(completion->words[kept - 1],
                                completion->words[i]) == 0) {
            free(completion->words[i]);
        } else {
            completion->words[kept++] = completion->words[i];
        }
    }
    completion->count = kept;
}

/* How many bytes all of them begin with; of UTF-8 no part of a character. */
static size_t
common(const struct rps_shell_completion *completion)
{
    const char *first = completion->words[0];
    size_t length = strlen(first);

    for (size_t i = 1; i < completion->count; i++) {
        size_t same = 0;

        while (same < length && completion->words[i][same] == first[same]) {
            same++;
        }
        length = same;
    }
    while (length > 0 && ((unsigned char)first[length] & 0xc0) == 0x80) {
        length--;
    }
    return length;
}

static char *
more_of(const struct completer *completer)
{
    const struct rps_shell_completion *completion = completer->completion;
    const size_t typed = strlen(completer->prefix);
    char *rest, *escaped, *more;
    size_t length;
    bool ends;

    if (completion->count == 0) {
        return strdup("");
    }
    length = common(completion);
    ends = completion->count == 1 &&
           (length == 0 || completion->words[0][length - 1] != '/');
    rest = length > typed
                   ? strndup(completion->words[0] + typed, length - typed)
                   : strdup("");
    escaped = rest != NULL ? rps_shell_words_escape(rest) : NULL;
    more = escaped != NULL ? rps_format("%s%s", escaped, ends ? " " : "")
                           : NULL;
    free(rest);
    free(escaped);
    return more;
}

void
rps_shell_complete(const struct rps_tool *const *commands, const char *line,
        size_t length, struct rps_shell_completion *completion_out)
{
    struct rps_shell_words words, command;
    struct completer completer = {.commands = commands,
            .words = &command,
            .prefix = "",
            .completion = completion_out};

    *completion_out = (struct rps_shell_completion){.words = NULL};
    rps_shell_words_split(line, length, &words);
    command = words;
    if (rps_shell_words_prefix(&words) > 0 &&
            (words.count > 2 || !words.is_open)) {
        command.words += rps_shell_words_prefix(&words);
        command.count -= rps_shell_words_prefix(&words);
    }
    completer.place = command.count;
    if (words.is_open && command.count > 0) {
        completer.place = command.count - 1;
        completer.prefix = command.words[completer.place];
    }
    if (!words.failed && !words.unquoted) {
        add_all(&completer);
        sort(completion_out);
    }
    completion_out->more = more_of(&completer);
    rps_shell_words_finish(&words);
}

void
rps_shell_completion_finish(struct rps_shell_completion *completion)
{
    for (size_t i = 0; i < completion->count; i++) {
        free(completion->words[i]);
    }
    free(completion->words);
    free(completion->more);
    *completion = (struct rps_shell_completion){.words = NULL};
}
