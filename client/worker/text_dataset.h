/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dataset whose rows are lines of text, streamed: what criteo, libfm and
 * feasign share.
 */
#ifndef RPS_WORKER_TEXT_DATASET_H
#define RPS_WORKER_TEXT_DATASET_H

#include "client/worker/dataset_impl.h"
#include "client/worker/lines.h"

/** Look at one line; INVAL: a bad row (rps_bad_row). */
typedef rps_status (*rps_line_fn)(struct rps_dataset *dataset,
        struct rps_line *line, struct rps_error *error);

struct rps_text_dataset {
    struct rps_file_list files;
    struct rps_line_reader lines;
    rps_line_fn parse; /* line -> dataset->row */
    /* feasign alone: the input's slots and one line's tokens */
    uint64_t *slots; /* sorted; the index is the field */
    size_t slot_count;
    size_t slot_capacity;
    uint64_t *token_keys; /* [token_capacity], of the line in hand */
    uint64_t *token_slots;
    size_t token_count;
    size_t token_capacity;
};

/**
 * Find the files and make dataset->reader. The caller sets the shape, then
 * rps_row_builder_init().
 */
rps_status rps_text_dataset_open(struct rps_dataset *dataset,
        const char *format, const char *path, rps_line_fn parse,
        struct rps_error *error);

/**
 * Show every line of the input to `fn`, count the rows, forget the bad ones
 * if they are skipped. Leaves the reading position alone.
 */
rps_status rps_text_dataset_scan(
        struct rps_dataset *dataset, rps_line_fn fn, struct rps_error *error);

/** The same with the files of options.also, if it has this format; their
 * rows are not counted. */
rps_status rps_text_dataset_scan_also(struct rps_dataset *dataset,
        const char *format, rps_line_fn fn, struct rps_error *error);

rps_status rps_text_dataset_next(
        struct rps_dataset *dataset, struct rps_error *error);
rps_status rps_text_dataset_rewind(
        struct rps_dataset *dataset, struct rps_error *error);
rps_status rps_text_dataset_count(
        struct rps_dataset *dataset, struct rps_error *error);
void rps_text_dataset_close(struct rps_dataset *dataset);

/**
 * Cut a line into columns at `separator`: returns the next one and moves
 * *rest behind it, NULL when there is no more.
 */
char *rps_line_column(char **rest, char separator);

/** A key column, where keys are taken as they are. */
rps_status rps_line_key(const struct rps_line *line, size_t column,
        const char *text, uint64_t *key_out, struct rps_error *error);

#endif /* RPS_WORKER_TEXT_DATASET_H */
