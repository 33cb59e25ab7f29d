/* SPDX-License-Identifier: Apache-2.0 */
/* A build without the peers' libraries: no kind is there. */
#include "bench/table/peers.h"

bool
bench_peer_has(enum bench_peer_kind kind, size_t row_bytes)
{
    (void)kind;
    (void)row_bytes;
    return false;
}

struct bench_peer *
bench_peer_create(enum bench_peer_kind kind, const struct bench_peer_rows *rows)
{
    (void)kind;
    (void)rows;
    return NULL;
}

void
bench_peer_destroy(struct bench_peer *peer)
{
    (void)peer;
}

size_t
bench_peer_lookup(const struct bench_peer *peer, size_t n, const uint64_t *keys,
        unsigned distance, char *out)
{
    (void)peer;
    (void)n;
    (void)keys;
    (void)distance;
    (void)out;
    return 0;
}

const char *
bench_peer_str(enum bench_peer_kind kind)
{
    (void)kind;
    return "";
}
