/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service counts, as plain numbers, for whoever shows them (the
 * admin port). Reading them holds no request up.
 */
#ifndef RPS_SERVER_FIGURES_H
#define RPS_SERVER_FIGURES_H

#include "base/error.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_service;

/** What the writer's thread has in hand that keeps requests waiting. */
enum rps_busy {
    RPS_BUSY_NOT,
    RPS_BUSY_SAVE,   /* PREPARE: a cut is being written */
    RPS_BUSY_RESTORE /* a new epoch's tables are read */
};

/** Since the table was made or restored. Bytes are of memory. */
struct rps_table_figures {
    char name[RPS_NAME_BYTES_MAX + 1];
    uint32_t dim;
    uint64_t rows;
    uint64_t bytes;
    uint64_t index_bytes;
    uint64_t admission_keys;
    uint64_t admission_bytes;
    uint64_t memory_limit; /* 0: none of its own */
    uint64_t lookups;      /* keys looked up */
    uint64_t missing;      /* of them absent */
    uint64_t pushes;       /* requests or steps */
    uint64_t applied;      /* rows stepped */
    uint64_t inserted;
    uint64_t erased;
    uint64_t evicted_cold;
    uint64_t evicted_full;
    uint64_t disk_rows; /* of `rows` */
    uint64_t disk_bytes;
    uint64_t disk_hits; /* of `lookups` */
    uint64_t lowered;
    uint64_t raised;
    uint64_t dropped; /* new keys without room */
    uint64_t nonfinite;
    uint64_t unadmitted;
};

/** The replicas of the job that began last, which PS 0 knows alone. */
struct rps_job_figures {
    bool begun;
    char mode[24];
    uint32_t here; /* waited for */
    uint32_t left;
    uint32_t given_up; /* not of `left` */
    uint64_t behind;   /* steps from the first to the last of those here */
};

/** Of --serve; zeros without it. */
struct rps_serving_figures {
    bool is_serving;
    bool holds; /* a checkpoint; the next four are its */
    uint64_t step;
    uint32_t epoch;
    bool is_delta;
    uint64_t saved_unix_s;
    uint64_t age_seconds; /* since it was saved */
    uint64_t loads_full;  /* beside what was served */
    uint64_t loads_delta; /* in place */
    uint64_t load_failures;
};

struct rps_service_figures {
    uint64_t incarnation;
    uint64_t step;
    uint32_t epoch;
    uint64_t memory_used;
    uint64_t memory_limit;  /* 0: none */
    uint64_t late;          /* pushes after their step's decision */
    uint64_t uncounted;     /* contributions that no decision counted */
    uint64_t auth_failures; /* HELLOs without the token's proof */
    uint64_t lanes;         /* clients that are known, by server */
    uint64_t reconnects;    /* HELLOs of one that was known */
    uint64_t repeats;       /* requests answered by a kept verdict */
    size_t sessions;
    size_t writer_waiting; /* tasks */
    struct rps_job_figures job;
    struct rps_serving_figures serving;

    enum rps_busy busy;
    uint64_t busy_ms; /* so long */
    uint64_t saves;
    uint64_t save_failures;
    uint64_t saved_unix_s;      /* 0: none since the start */
    double save_seconds;        /* of the last one */
    uint64_t save_bytes;        /* of the last one, this PS's files */
    bool save_delta;            /* it is one */
    bool save_open;             /* a cut is taken, and not saved yet */
    double save_pause;          /* of the last cut: rows stood still, seconds */
    double save_barrier;        /* PS 0: replicas were held for it, seconds */
    uint64_t save_buffer_bytes; /* of rows copied before they changed, now */
    uint64_t save_buffer_peak;  /* of any save */
    uint64_t save_buffer_limit;
    uint64_t save_copied; /* rows, since the start */
    uint64_t save_waits;  /* for room in the buffer, since the start */
    uint64_t restores;
    uint64_t restore_failures;
    double restore_seconds;
    uint64_t restore_rows;
    uint64_t restore_rows_total;

    struct rps_table_figures *tables; /* [table_count], in order of creation */
    size_t table_count;
};

/** How far the RESTORE in hand is: 0 of 0 before its first row, or where it
 * makes empty tables. No lock. */
void rps_service_restore_progress(struct rps_service *service,
        uint64_t *rows_out, uint64_t *rows_total_out);

/** What the writer has in hand, and for how long (may be NULL). No lock. */
enum rps_busy rps_service_busy(struct rps_service *service, uint64_t *ms_out);

/**
 * Read everything into *figures, which is zeroed or of an earlier call: where
 * the tables cannot be looked at within wait_ms (they are being replaced, or
 * a checkpoint keeps their next change waiting) those of before stay.
 *
 * Threads: any. Errors: NOMEM, RETRY_LATER (the tables are those of before).
 */
rps_status rps_service_figures_read(struct rps_service *service,
        uint32_t wait_ms, struct rps_service_figures *figures);

/**
 * The keys of a table that are pushed most, at most `max` (and at most
 * RPS_HOT_KEYS_MAX), the first most often, as HOT_KEYS answers: JSON text,
 * free(). From a sample: see embedding/table.h.
 *
 * Threads: any. Errors: NOT_FOUND, RETRY_LATER (as above), NOMEM.
 */
rps_status rps_service_hot_keys(struct rps_service *service, const char *table,
        size_t max, uint32_t wait_ms, char **text_out);

/** Zeros where the service does not serve a folder. Threads: any. */
void rps_service_serving(
        struct rps_service *service, struct rps_serving_figures *out);

void rps_service_figures_finish(struct rps_service_figures *figures);

#endif /* RPS_SERVER_FIGURES_H */
