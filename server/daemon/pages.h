/* SPDX-License-Identifier: Apache-2.0 */
/* Does the system give huge pages to those who ask for them? */
#ifndef RPS_SERVER_DAEMON_PAGES_H
#define RPS_SERVER_DAEMON_PAGES_H

#include <stdbool.h>

#define RPS_HUGE_PAGES_SETTING "/sys/kernel/mm/transparent_hugepage/enabled"

/** True if the setting in this file is "never"; false where it cannot be
 * read: then nothing is known. */
bool rps_huge_pages_are_off(const char *path);

/** Warn, with the setting's name and what it costs, where they are off. */
void rps_huge_pages_check(const char *path);

#endif /* RPS_SERVER_DAEMON_PAGES_H */
