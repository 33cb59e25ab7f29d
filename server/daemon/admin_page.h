/* SPDX-License-Identifier: Apache-2.0 */
/* What page/embed.py makes of the page's sources at build time. */
#ifndef RPS_SERVER_DAEMON_ADMIN_PAGE_H
#define RPS_SERVER_DAEMON_ADMIN_PAGE_H

#include <stddef.h>

extern const unsigned char rps_page[]; /* [rps_page_bytes], UTF-8 */
extern const size_t rps_page_bytes;

/** Its Content-Security-Policy: this style and this script, and no other. */
extern const char rps_page_policy[];

#endif /* RPS_SERVER_DAEMON_ADMIN_PAGE_H */
