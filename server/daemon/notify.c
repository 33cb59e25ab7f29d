/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/notify.h"

#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WORDS_BYTES 1024u

/* A path, or "@name" in the abstract space, where the @ stands for a 0. */
static bool
address_of(const char *name, struct sockaddr_un *address, socklen_t *length)
{
    const size_t n = strlen(name);

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (n < 2 || n >= sizeof(address->sun_path) ||
            (name[0] != '/' && name[0] != '@')) {
        return false;
    }
    memcpy(address->sun_path, name, n);
    if (name[0] == '@') {
        address->sun_path[0] = '\0';
    }
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return true;
}

static bool
send_words(const char *words, size_t n)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t length = 0;
    ssize_t sent;
    int fd;

    if (name == NULL || !address_of(name, &address, &length)) {
        return false;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    do { /* a full queue must not hold the main loop */
        sent = sendto(fd, words, n, MSG_NOSIGNAL | MSG_DONTWAIT,
                (const struct sockaddr *)&address, length);
    } while (sent < 0 && errno == EINTR);
    close(fd);
    return sent == (ssize_t)n;
}

bool
rps_notify(const char *format, ...)
{
    char words[WORDS_BYTES];
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    return n > 0 && (size_t)n < sizeof(words) && send_words(words, (size_t)n);
}

uint64_t
rps_notify_watchdog_us(void)
{
    const char *time = getenv("WATCHDOG_USEC");
    const char *process = getenv("WATCHDOG_PID");
    uint64_t us = 0, pid = 0;

    if (time == NULL || !rps_parse_u64(time, &us)) {
        return 0;
    }
    if (process != NULL &&
            (!rps_parse_u64(process, &pid) || pid != (uint64_t)getpid())) {
        return 0;
    }
    return us;
}
