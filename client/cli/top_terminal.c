/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One terminal a process, so what signal handlers need is static: they give
 * the terminal back (tcsetattr and write may be called there) and let the
 * signal do what it does.
 */
#include "client/cli/top_terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define COLUMNS_DEFAULT 80u
#define LINES_DEFAULT   24u

/* alternate screen, no cursor, no wrapping at the right margin */
static const char take[] = "\033[?1049h\033[?25l\033[?7l";
static const char give[] = "\033[?7h\033[?25h\033[?1049l";

static struct termios before;          /* set before the handlers are */
static bool has_keys;                  /* likewise: stdin is a terminal */
static volatile sig_atomic_t is_taken; /* also looked at by handlers */

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGSEGV,
        SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGXCPU};

bool
rps_terminal_is_there(void)
{
    const char *name = getenv("TERM");

    return isatty(STDOUT_FILENO) != 0 && name != NULL && name[0] != '\0' &&
           strcmp(name, "dumb") != 0;
}

static void
say(const char *bytes, size_t n)
{
    const ssize_t written = write(STDOUT_FILENO, bytes, n);

    (void)written; /* a terminal that is gone needs nothing */
}

static void
enter(void)
{
    if (has_keys) {
        struct termios raw = before;

        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ^C and ^Z stay signals */
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    }
    say(take, sizeof(take) - 1);
    is_taken = 1;
}

void
rps_terminal_end(void)
{
    if (is_taken != 0) {
        is_taken = 0;
        say(give, sizeof(give) - 1);
        if (has_keys) {
            (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
        }
    }
}

/* The signal comes again when the handler is over, and does its own. */
static void
on_end(int number)
{
    rps_terminal_end();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void
handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL); /* no SA_RESTART: polls wake */
}

static void
on_size(int number)
{
    (void)number; /* poll() has woken */
}

/* Stops here, as ^Z would, and goes on here. */
static void
on_stop(int number)
{
    const int kept = errno;
    sigset_t set;

    rps_terminal_end();
    handle(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    (void)raise(number);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    handle(number, on_stop);
    enter();
    errno = kept;
}

bool
rps_terminal_begin(void)
{
    has_keys = isatty(STDIN_FILENO) != 0;
    if (has_keys && tcgetattr(STDIN_FILENO, &before) != 0) {
        return false;
    }
    (void)atexit(rps_terminal_end);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        handle(ends[i], on_end);
    }
    handle(SIGTSTP, on_stop);
    handle(SIGWINCH, on_size);
    enter();
    return true;
}

struct rps_terminal_size
rps_terminal_size(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ||
            size.ws_row == 0) {
        return (struct rps_terminal_size){COLUMNS_DEFAULT, LINES_DEFAULT};
    }
    return (struct rps_terminal_size){size.ws_col, size.ws_row};
}

int
rps_terminal_key(uint32_t wait_ms)
{
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    ssize_t n;

    if (poll(&keys, 1, (int)wait_ms) <= 0) {
        return 0;
    }
    n = read(STDIN_FILENO, &key, 1);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        return -1;
    }
    return n == 1 ? (unsigned char)key : 0;
}
