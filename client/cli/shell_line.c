/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/shell_line.h"

#include "base/file.h"
#include "base/text.h"
#include "client/cli/shell_complete.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef RPS_HAVE_LIBEDIT
#include <histedit.h>
#endif

#define HISTORY_LINES 1000

struct rps_shell_line {
    const char *prompt;
    const struct rps_tool *const *commands;
    bool is_terminal;
    char *bytes; /* of getline() */
    size_t capacity;
#ifdef RPS_HAVE_LIBEDIT
    EditLine *edit; /* NULL: it is no terminal */
    History *history;
    char *history_path; /* NULL: it is not kept */
#endif
};

/* --- without editing --------------------------------------------------------
 */

static void
interrupted(int number)
{
}

/* Ctrl+C ends the read, and not the process: what it was asked for is out. */
static const char *
read_plain(struct rps_shell_line *line)
{
    const struct sigaction leave = {.sa_handler = interrupted};
    struct sigaction before;
    ssize_t length;

    if (line->is_terminal) {
        printf("%s", line->prompt);
        (void)fflush(stdout);
        (void)sigaction(SIGINT, &leave, &before);
    }
    length = getline(&line->bytes, &line->capacity, stdin);
    if (line->is_terminal) {
        (void)sigaction(SIGINT, &before, NULL);
        if (length < 0) {
            printf("\n");
        }
    }
    return length < 0 ? NULL : line->bytes;
}

#ifdef RPS_HAVE_LIBEDIT

/* --- with libedit ------------------------------------------------------------
 */

static struct rps_shell_line *
line_of(EditLine *edit)
{
    void *line = NULL;

    (void)el_get(edit, EL_CLIENTDATA, &line);
    return line;
}

static char *
prompt_of(EditLine *edit)
{
    /* libedit does not change it */
    return (char *)(uintptr_t)line_of(edit)->prompt;
}

static void
show_words(const struct rps_shell_completion *completion)
{
    printf("\n");
    for (size_t i = 0; i < completion->count; i++) {
        printf("%s%s", completion->words[i],
                i + 1 < completion->count ? "  " : "\n");
    }
    (void)fflush(stdout);
}

static unsigned char
complete(EditLine *edit, int key)
{
    const struct rps_shell_line *line = line_of(edit);
    const LineInfo *info = el_line(edit);
    struct rps_shell_completion completion;
    unsigned char what = CC_ERROR; /* a bell */

    rps_shell_complete(line->commands, info->buffer,
            (size_t)(info->cursor - info->buffer), &completion);
    if (completion.more != NULL && completion.more[0] != '\0') {
        what = el_insertstr(edit, completion.more) == 0 ? CC_REFRESH : CC_ERROR;
    } else if (completion.count > 1) {
        show_words(&completion);
        what = CC_REDISPLAY;
    }
    rps_shell_completion_finish(&completion);
    return what;
}

static unsigned char
leave(EditLine *edit, int key)
{
    return CC_EOF;
}

/* Of the user, as the XDG folders have it; NULL: there is no home. */
static char *
make_history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char *folder = NULL, *path = NULL;

    if (state != NULL && state[0] == '/') {
        folder = rps_format("%s/recps", state);
    } else if (home != NULL && home[0] == '/') {
        folder = rps_format("%s/.local/state/recps", home);
    }
    if (folder != NULL && rps_dir_make(folder, NULL) == RPS_OK) {
        path = rps_format("%s/precision_history", folder);
    }
    free(folder);
    return path;
}

static void
open_history(struct rps_shell_line *line)
{
    HistEvent event;

    line->history = history_init();
    if (line->history == NULL) {
        return;
    }
    (void)history(line->history, &event, H_SETSIZE, HISTORY_LINES);
    (void)history(line->history, &event, H_SETUNIQUE, 1);
    line->history_path = make_history_path();
    if (line->history_path != NULL) {
        (void)history(line->history, &event, H_LOAD, line->history_path);
    }
    (void)el_set(line->edit, EL_HIST, history, line->history);
}

/* Ctrl+C is a key here: no signal cuts what is being edited. */
static void
open_edit(struct rps_shell_line *line)
{
    if (!line->is_terminal) {
        return;
    }
    line->edit = el_init("recps", stdin, stdout, stderr);
    if (line->edit == NULL) {
        return;
    }
    (void)el_set(line->edit, EL_CLIENTDATA, line);
    (void)el_set(line->edit, EL_PROMPT, prompt_of);
    (void)el_set(line->edit, EL_EDITOR, "emacs");
    (void)el_set(line->edit, EL_SIGNAL, 1);
    (void)el_set(line->edit, EL_ADDFN, "rps-complete", "complete", complete);
    (void)el_set(line->edit, EL_ADDFN, "rps-leave", "leave", leave);
    (void)el_source(line->edit, NULL);
    (void)el_set(line->edit, EL_BIND, "^I", "rps-complete", NULL);
    (void)el_set(line->edit, EL_BIND, "^C", "rps-leave", NULL);
    (void)el_set(line->edit, EL_SETTY, "-d", "-isig", NULL);
    open_history(line);
}

/* At once: what ends the process later saves nothing. */
static void
save_history(struct rps_shell_line *line)
{
    HistEvent event;

    if (line->history_path != NULL) {
        (void)history(line->history, &event, H_SAVE, line->history_path);
    }
}

static void
keep(struct rps_shell_line *line, const char *text)
{
    HistEvent event;

    if (line->history != NULL && text[strspn(text, " \t\r\n")] != '\0') {
        (void)history(line->history, &event, H_ENTER, text);
        save_history(line);
    }
}

/* A signal between the prompt and the first key, or of another process:
 * libedit has put the terminal back when this is called. */
static void
leave_at_once(int number)
{
    if (write(STDOUT_FILENO, "\n", 1) >= 0) {
        _exit(RPS_TOOL_OK);
    }
    _exit(RPS_TOOL_IO);
}

static const char *
read_edited(struct rps_shell_line *line)
{
    const struct sigaction action = {.sa_handler = leave_at_once};
    struct sigaction before;
    const char *text;
    int count = 0;

    (void)sigaction(SIGINT, &action, &before);
    text = el_gets(line->edit, &count);
    (void)sigaction(SIGINT, &before, NULL);
    if (text == NULL || count <= 0) {
        printf("\n");
        return NULL;
    }
    keep(line, text);
    return text;
}

static void
close_edit(struct rps_shell_line *line)
{
    if (line->edit != NULL) {
        el_end(line->edit);
    }
    if (line->history != NULL) {
        history_end(line->history);
    }
    free(line->history_path);
}

bool
rps_shell_line_is_edited(const struct rps_shell_line *line)
{
    return line->edit != NULL;
}

#else

static void
open_edit(struct rps_shell_line *line)
{
}

static const char *
read_edited(struct rps_shell_line *line)
{
    return NULL;
}

static void
close_edit(struct rps_shell_line *line)
{
}

bool
rps_shell_line_is_edited(const struct rps_shell_line *line)
{
    return false;
}

#endif

/* --- both --------------------------------------------------------------------
 */

struct rps_shell_line *
rps_shell_line_create(
        const char *prompt, const struct rps_tool *const *commands)
{
    struct rps_shell_line *line = calloc(1, sizeof(*line));

    if (line == NULL) {
        return NULL;
    }
    line->prompt = prompt;
    line->commands = commands;
    line->is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    (void)setlocale(LC_CTYPE, ""); /* names are UTF-8, mostly */
    open_edit(line);
    return line;
}

void
rps_shell_line_destroy(struct rps_shell_line *line)
{
    if (line != NULL) {
        close_edit(line);
        free(line->bytes);
        free(line);
    }
}

bool
rps_shell_line_is_terminal(const struct rps_shell_line *line)
{
    return line->is_terminal;
}

const char *
rps_shell_line_read(struct rps_shell_line *line)
{
    return rps_shell_line_is_edited(line) ? read_edited(line)
                                          : read_plain(line);
}
