/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table's rows read whole, for a copy elsewhere: values, optimizer slots and
 * meta, what rps_assign_rows() (client.h) takes.
 */
#ifndef RPS_ROWS_H
#define RPS_ROWS_H

#include <recps/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Room for what rps_read_rows() finds; each as long as its `max`. */
typedef struct rps_rows {
    uint64_t *keys;
    float *rows;    /**< [max][dim] */
    float *slots;   /**< [max][slot floats], or NULL: not wanted */
    uint32_t *meta; /**< last | uses << 24 */
} rps_rows;

/**
 * The next rows of a table, values as f32; *scan moves on as with
 * rps_scan_rows(). A row that leaves meanwhile may be left out.
 *
 * Shapes:  rows->keys[max], and so on; *count_out of them are filled, as
 *          many as fit a frame; 0: the end.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such table), RPS_E_INVAL (a scan of another
 *          cluster), RPS_E_UNSUPPORTED (an older server); the usual. On error
 *          *scan stays where it was.
 */
RPS_API RPS_NODISCARD rps_status rps_read_rows(rps_client *client,
        const rps_embedding_table *table, rps_scan *scan, size_t max,
        const rps_rows *rows, size_t *count_out);

#ifdef __cplusplus
}
#endif

#endif /* RPS_ROWS_H */
