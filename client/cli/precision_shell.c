/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision shell: the guide's prompt. Every command of recps precision,
 * without these two words before it. */
#include "client/cli/precision.h"
#include "client/cli/shell_complete.h"
#include "client/cli/shell_line.h"
#include "client/cli/shell_words.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOOL      "precision shell"
#define PROMPT    "PrecisionTool > "
#define PARTS_MAX 64u

static const char usage[] =
        "usage: recps precision shell\n"
        "\n"
        "The guide's prompt, \"PrecisionTool > \": each line is a command of\n"
        "recps precision without these two words, as `ac -c` or `vcs -c "
        "0.999`.\n"
        "Tab completes commands, flags, names of operators and files; lines "
        "are\n"
        "kept in $XDG_STATE_HOME/recps/precision_history. `help` lists the\n"
        "commands; `exit`, Ctrl+D and Ctrl+C leave; while a command runs "
        "Ctrl+C\n"
        "ends the command. These two words are allowed. Lines may come from a "
        "pipe\n"
        "or a file, too: there is no prompt then, and the exit code is the\n"
        "largest one of the commands. # begins a comment.\n";

/* Every part but this one. */
static size_t
find_commands(const struct rps_tool *commands[PARTS_MAX])
{
    size_t count = 0;

    for (size_t i = 0; rps_tool_precision.parts[i] != NULL; i++) {
        if (rps_tool_precision.parts[i] != &rps_tool_precision_shell &&
                count + 1 < PARTS_MAX) {
            commands[count++] = rps_tool_precision.parts[i];
        }
    }
    commands[count] = NULL;
    return count;
}

static void
print_commands(const struct rps_tool *const *commands)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("  %-19s %s\n", rps_tool_word(commands[i]),
                commands[i]->summary);
    }
    printf("  %-19s %s\n  %-19s %s\n", "help COMMAND", "its options", "exit",
            "leave; so do quit, Ctrl+D and Ctrl+C");
}

static int
unknown(const char *word, const char *near)
{
    if (strcmp(word, "recps") == 0) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "only the commands of recps precision are here (help lists "
                "them)");
    }
    if (near != NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "no command \"%s\"; did you mean \"%s\"?", word, near);
    }
    return rps_tool_fail(
            RPS_TOOL_USAGE, TOOL, "no command \"%s\" (help lists them)", word);
}

/* argv[0] is the program's name, as main() has it: it takes the command's
 * place. `help COMMAND` is `COMMAND --help`. */
static int
run_words(const struct rps_tool *const *commands, size_t count,
        const struct rps_shell_words *words)
{
    static char name[] = "recps", help[] = "--help";
    char *argv[RPS_SHELL_WORDS_MAX + 2];
    const bool wants_help = strcmp(words->words[0], "help") == 0;
    const char *word = words->words[wants_help && words->count > 1 ? 1 : 0];
    const char *near = NULL;
    const struct rps_tool *tool;

    if (wants_help && words->count == 1) {
        print_commands(commands);
        return RPS_TOOL_OK;
    }
    tool = rps_tool_find(commands, count, word, &near);
    if (tool == NULL) {
        return unknown(word, near);
    }
    if (wants_help) {
        char *asked[] = {name, help, NULL};

        return rps_tool_run(tool, 2, asked);
    }
    argv[0] = name;
    /* with the NULL that ends them */
    memcpy(&argv[1], &words->words[1], words->count * sizeof(*argv));
    return rps_tool_run(tool, (int)words->count, argv);
}

/* At a terminal: Ctrl+C ends the command, in a process of its own, and not the
 * prompt. */
static int
run_apart(const struct rps_tool *const *commands, size_t count,
        const struct rps_shell_words *words)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    int status = 0;
    pid_t child;

    (void)sigaction(SIGINT, &ignore, &before);
    child = rps_tool_flush() ? fork() : -1;
    if (child <= 0) {
        (void)sigaction(SIGINT, &before, NULL);
    }
    if (child < 0) {
        return run_words(commands, count, words);
    }
    if (child == 0) {
        const int code = run_words(commands, count, words);

        _exit(rps_tool_end(code));
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    (void)sigaction(SIGINT, &before, NULL);
    if (WIFSIGNALED(status)) {
        printf("\n");
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

static bool
is_leaving(const struct rps_shell_words *words)
{
    return words->count == 1 && (strcmp(words->words[0], "exit") == 0 ||
                                        strcmp(words->words[0], "quit") == 0);
}

/* One line. Returns its exit code; *leaves: it was the last one. */
static int
run_line(const struct rps_tool *const *commands, size_t count, const char *line,
        bool is_terminal, bool *leaves)
{
    struct rps_shell_words words, command; /* without the prefix */
    size_t prefix;
    int code = RPS_TOOL_OK;

    rps_shell_words_split(line, strlen(line), &words);
    command = words;
    prefix = rps_shell_words_prefix(&words);
    if (prefix > 0) {
        command.words += prefix;
        command.count -= prefix;
    }
    if (words.failed) {
        code = rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "a line has more than %u words", RPS_SHELL_WORDS_MAX);
    } else if (words.unquoted) {
        code = rps_tool_fail(RPS_TOOL_USAGE, TOOL, "a quote has no end");
    } else if (is_leaving(&command)) {
        *leaves = true;
    } else if (command.count > 0) {
        code = is_terminal ? run_apart(commands, count, &command)
                           : run_words(commands, count, &command);
    } else if (prefix > 0) {
        print_commands(commands);
    }
    rps_shell_words_finish(&words);
    return code;
}

static void
greet(const struct rps_shell_line *line)
{
    printf("help lists the commands, Ctrl+C leaves.\n");
    if (!rps_shell_line_is_edited(line)) {
        printf("No history and no completion: this build has no libedit.\n");
    }
}

static int
run(const struct rps_tool_call *call)
{
    const struct rps_tool *commands[PARTS_MAX];
    const size_t count = find_commands(commands);
    struct rps_shell_line *line = rps_shell_line_create(PROMPT, commands);
    int worst = RPS_TOOL_OK;
    bool leaves = false;
    bool is_terminal;
    const char *text;

    if (line == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    }
    is_terminal = rps_shell_line_is_terminal(line);
    if (is_terminal) {
        greet(line);
    }
    while (!leaves && (text = rps_shell_line_read(line)) != NULL) {
        const int code = run_line(commands, count, text, is_terminal, &leaves);

        worst = code > worst ? code : worst;
        if (!rps_tool_flush()) {
            break;
        }
    }
    rps_shell_line_destroy(line);
    /* at a terminal each one was seen */
    return is_terminal ? RPS_TOOL_OK : worst;
}

const struct rps_tool rps_tool_precision_shell = {
        .name = TOOL,
        .usage = usage,
        .summary = "the guide's prompt, \"PrecisionTool > \"",
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
