/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recps top shows: rates and percentiles between two looks at the
 * servers' STAT. A figure that two looks do not give (the first one, a server
 * that began anew) is NaN.
 */
#ifndef RPS_CLIENT_CLI_TOP_FIGURES_H
#define RPS_CLIENT_CLI_TOP_FIGURES_H

#include "client/cli/top_workers.h"

#include <recps/client.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_TOP_WHY_BYTES 256
#define RPS_TOP_HOT_MAX   16u

/** One look at one server. */
struct rps_top_look {
    json_t *stat; /* owned; NULL: it did not answer */
    uint64_t at_ns;
    double ping_ms;
    char why[RPS_TOP_WHY_BYTES]; /* it did not */
};

/** Of a second, unless it says otherwise. */
struct rps_top_rates {
    double requests;
    double errors;
    double lookups;  /* keys */
    double missing;  /* of them without a row: 0 to 1 */
    double updates;  /* rows stepped */
    double inserted; /* rows */
    double evicted;  /* rows */
    double received; /* bytes */
    double sent;     /* bytes */
};

struct rps_top_ps {
    bool here;       /* what follows is of now, not of its last answer */
    const char *why; /* not here; borrowed from its look */
    uint64_t age_ms; /* of its last answer */
    uint64_t epoch;
    uint64_t step;
    const char *mode; /* borrowed */
    uint64_t connections;
    uint64_t memory_used;
    uint64_t memory_limit; /* 0: none */
    double ping_ms;
    double lookup_p50_ns;
    double lookup_p99_ns;
    double push_p99_ns;
    struct rps_top_rates rates;
};

struct rps_top_table {
    const char *name; /* borrowed from a look */
    uint64_t dim;
    uint64_t rows;
    uint64_t bytes;
    uint64_t memory_limit; /* of all servers; 0: none */
    struct rps_top_rates rates;
};

struct rps_top {
    double seconds;        /* between the two looks; NaN: there is one */
    struct rps_top_ps *ps; /* [ps_count], owned */
    uint32_t ps_count;
    struct rps_top_table *tables; /* [table_count], owned */
    size_t table_count;
    struct rps_top_rates sum;              /* of the servers that are here */
    const struct rps_top_workers *workers; /* borrowed; NULL: not asked */
    const char *hot_table;                 /* NULL: none */
    rps_hot hot[RPS_TOP_HOT_MAX];
    size_t hot_count;
};

void rps_top_look_finish(struct rps_top_look *look);

/**
 * Work everything but the hot keys out: now[ps_count] against
 * before[ps_count], whose stats may be NULL. What it borrows lives as long as
 * the looks. false: no memory.
 */
bool rps_top_work_out(struct rps_top *top, const struct rps_top_look *before,
        const struct rps_top_look *now, uint32_t ps_count, uint64_t now_ns);

void rps_top_finish(struct rps_top *top);

/** What --json prints; new reference. */
json_t *rps_top_json(const struct rps_top *top, const rps_cluster *cluster);

/**
 * The value below which `part` of the requests stay that came between two
 * STATs, in nanoseconds: straight between the bounds of its bucket. NaN: none
 * came. `before` may be NULL: all since the start.
 */
double rps_top_percentile(const json_t *before, const json_t *now,
        const char *opcode, double part);

#endif /* RPS_CLIENT_CLI_TOP_FIGURES_H */
