/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash tables that a user could take instead, with the same keys and
 * rows. peers.cc is built where the libraries are found (option `peers`),
 * else peers_none.c.
 */
#ifndef RPS_BENCH_TABLE_PEERS_H
#define RPS_BENCH_TABLE_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bench_peer_kind {
    BENCH_PEER_ABSL,        /* key -> row number; rows in one array */
    BENCH_PEER_ABSL_INLINE, /* key -> the row itself, some sizes only */
    BENCH_PEER_LIBCUCKOO,   /* key -> row number */
    BENCH_PEER_LIBCUCKOO_INLINE,
    BENCH_PEER_COUNT
};

struct bench_peer;

/** What a peer is filled with; `rows` must live as long as the peer. */
struct bench_peer_rows {
    uint64_t (*key_at)(const void *context, uint64_t row);
    const void *context;
    uint64_t row_count;
    const char *rows; /* [row_count][row_bytes], packed */
    size_t row_bytes;
};

/** Whether this build has the kind, for rows of this size. */
bool bench_peer_has(enum bench_peer_kind kind, size_t row_bytes);

/** NULL: not built, or no memory. */
struct bench_peer *bench_peer_create(
        enum bench_peer_kind kind, const struct bench_peer_rows *rows);
void bench_peer_destroy(struct bench_peer *peer);

/**
 * Copy the rows of keys[n] to out, packed. distance > 0: prefetch so many
 * keys ahead, where the table can. Returns the keys found. Any thread.
 */
size_t bench_peer_lookup(const struct bench_peer *peer, size_t n,
        const uint64_t *keys, unsigned distance, char *out);

/** "absl::flat_hash_map<u64, u32 row number>" */
const char *bench_peer_str(enum bench_peer_kind kind);

#ifdef __cplusplus
}
#endif

#endif /* RPS_BENCH_TABLE_PEERS_H */
