/* SPDX-License-Identifier: Apache-2.0 */
/* A frame of recps top as text. */
#ifndef RPS_CLIENT_CLI_TOP_SCREEN_H
#define RPS_CLIENT_CLI_TOP_SCREEN_H

#include "base/text.h"
#include "client/cli/top_figures.h"

/** What a frame must fit in. */
struct rps_top_form {
    uint32_t columns; /* 0: as wide as it is */
    uint32_t lines;   /* 0: as long as it is */
    bool ansi;        /* a terminal: bold titles, drawn over the frame before */
    const char *head; /* behind "recps top": what the caller knows */
};

/**
 * Add a frame to *text. What does not fit is left out: columns from the least
 * telling on, lines of the longer list first.
 */
void rps_top_draw(struct rps_text *text, const struct rps_top *top,
        const rps_cluster *cluster, const struct rps_top_form *form);

/** "-", "17", "4.2k", "1.3M": of a second. Returns `out`. */
char *rps_top_rate(double rate, char out[32]);

/** "-", "870us", "3.1ms", "2.0s". Returns `out`. */
char *rps_top_time(double ns, char out[32]);

#endif /* RPS_CLIENT_CLI_TOP_SCREEN_H */
