/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table that others have trained, as their files have them. */
#ifndef RPS_CLIENT_CLI_TRAINED_ROWS_H
#define RPS_CLIENT_CLI_TRAINED_ROWS_H

#include "client/cli/tensor_file.h"

#include <recps/types.h>

#define RPS_TRAINED_SLOTS_MAX 2u

/** Zeroed it is empty. */
struct rps_trained_rows {
    /* keys, rows, uses, last, slots, and one that is being tried */
    struct rps_tensor_file files[5 + RPS_TRAINED_SLOTS_MAX];
    size_t file_count;
    const struct rps_tensor *keys; /* NULL: 0, 1, 2, … */
    const struct rps_tensor *rows;
    const struct rps_tensor *uses; /* NULL: 0 */
    const struct rps_tensor *last; /* NULL: 0 */
    struct {
        const char *name; /* "accumulator" */
        const struct rps_tensor *tensor;
    } slots[RPS_TRAINED_SLOTS_MAX];
    size_t slot_count; /* 0: fresh ones */
    uint64_t count;
    uint32_t dim;
};

/** Where they are: names of files, or of tensors in `from`. */
struct rps_trained_from {
    const char *from;  /* a folder as `recps export` writes it, or a
                          .safetensors file; NULL: keys and rows are files */
    const char *table; /* "TABLE.keys" in a file is found, too */
    const char *keys;  /* NULL: "keys"; "range": 0, 1, 2, … */
    const char *rows;  /* NULL: "rows" */
};

/** Open and check types and shapes. Errors: those of rps_tensor_file_open(),
 * INVAL (what is missing, or of another type or shape, in words). */
rps_status rps_trained_open(struct rps_trained_rows *trained,
        const struct rps_trained_from *where, struct rps_error *error);
void rps_trained_close(struct rps_trained_rows *trained);

/** The slots that `spec` has are there, each of its width, or none is. INVAL
 * says which is missing. */
rps_status rps_trained_check_slots(const struct rps_trained_rows *trained,
        const rps_table_spec *spec, struct rps_error *error);

uint64_t rps_trained_key(const struct rps_trained_rows *trained, uint64_t i);
/** row[dim] as float32: exact. */
void rps_trained_row(
        const struct rps_trained_rows *trained, uint64_t i, float *row);
/** Slots of the spec, side by side; false: there are none. */
bool rps_trained_slots(const struct rps_trained_rows *trained,
        const rps_table_spec *spec, uint64_t i, float *slots);
uint32_t rps_trained_meta(const struct rps_trained_rows *trained, uint64_t i);

/**
 * Every key once, every row finite, and finite as `spec` keeps it; memory for
 * keys is about `bytes`. INVAL or NONFINITE, naming the key and where.
 */
rps_status rps_trained_check(const struct rps_trained_rows *trained,
        const rps_table_spec *spec, size_t bytes, struct rps_error *error);

#endif /* RPS_CLIENT_CLI_TRAINED_ROWS_H */
