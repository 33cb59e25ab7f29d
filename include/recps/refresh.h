/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows in hand brought up to date, of many tables at once: what a cache of
 * rows needs. rps_refresh() (client.h) is the same of one table.
 */
#ifndef RPS_REFRESH_H
#define RPS_REFRESH_H

#include <recps/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One table's part of a fused refresh. */
typedef struct rps_refresh_part {
    rps_embedding_table *table;
    const uint64_t *keys; /**< [key_count] */
    size_t key_count;
    float *rows;      /**< [key_count][dim]: changed ones are overwritten */
    uint8_t *changed; /**< [key_count]: 1 where it did, else 0; NULL: none */
} rps_refresh_part;

/**
 * rps_refresh() of several tables in one call, and which rows changed.
 *
 * Shapes:  parts[count].
 * Units:   *changed_out counts positions of keys, duplicates too, over all
 *          parts.
 * Owns:    borrows parts and what they point to for the call.
 * Threads: the client's.
 * Errors:  RPS_E_LIMIT (tables of a call); as rps_embedding_lookup.
 */
RPS_API RPS_NODISCARD rps_status rps_refresh_tables(rps_client *client,
        uint64_t since, const rps_refresh_part *parts, size_t count,
        size_t *changed_out);

#ifdef __cplusplus
}
#endif

#endif /* RPS_REFRESH_H */
