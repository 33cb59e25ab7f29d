/* SPDX-License-Identifier: Apache-2.0 */
/* A report as one page that needs no other file and no script, light or dark
 * as its reader's system. */
#ifndef RPS_PRECISION_PAGE_H
#define RPS_PRECISION_PAGE_H

#include "base/error.h"
#include "base/text.h"

/** Its head, a title, and the verdict's lines. Classes that it styles: card,
 * quiet, good, bad, grid, mark (a dashed line), below (a row of a table), name
 * (a cell). */
void rps_page_begin(
        struct rps_text *page, const char *title, const char *verdict);

/** Text, escaped. */
void rps_page_text(struct rps_text *page, const char *text);

/** End it, replace the file, and release `page`. Errors: NOMEM, IO. */
rps_status rps_page_write(
        struct rps_text *page, const char *path, struct rps_error *error);

#endif /* RPS_PRECISION_PAGE_H */
