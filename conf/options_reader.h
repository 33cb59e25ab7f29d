/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One reading of one command line, between options.c and options_flags.c.
 */
#ifndef RPS_CONF_OPTIONS_READER_H
#define RPS_CONF_OPTIONS_READER_H

#include "conf/options_table.h"

#define RPS_EXIT_GO_ON  (-1)
#define RPS_EXIT_USAGE  64
#define RPS_EXIT_MEMORY 70
#define RPS_EXIT_CONFIG 78

struct rps_reader {
    struct rps_options *options;
    rps_cluster_options *cluster;
    uint32_t scope;
    const char *program;
    const char *usage;
    bool stop_at_operand;
    bool logs; /* refusals are lines of the log, which is JSON */
    int argc;
    char **argv;
    int at; /* of the argument in hand */
};

/** "PROGRAM: words" on stderr, or a line of the log, unless options->quiet;
 * kept in options->refusal; returns `code`. */
int rps_reader_refuse(const struct rps_reader *reader, int code,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/** Read argv; RPS_EXIT_GO_ON, or the exit code of what was printed. */
int rps_flags_read(struct rps_reader *reader);

#endif /* RPS_CONF_OPTIONS_READER_H */
