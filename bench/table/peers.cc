/* SPDX-License-Identifier: Apache-2.0 */
/*
 * absl::flat_hash_map and libcuckoo behind peers.h, each as fast as we could
 * make it: a mixing hash, huge pages, room reserved, and for absl a pipeline
 * of three stages (prefetch the place, find it and prefetch the row, copy).
 */
#include "bench/table/peers.h"

#include "bench/memory.h"

#include <absl/container/flat_hash_map.h>
#include <array>
#include <cstdlib>
#include <cstring>
#include <libcuckoo/cuckoohash_map.hh>
#include <memory>
#include <new>

struct bench_peer {
    virtual ~bench_peer() = default;
    virtual size_t lookup(size_t n, const uint64_t *keys, unsigned distance,
            char *out) const = 0;
};

namespace
{

constexpr size_t line_bytes = 64;
constexpr unsigned distance_max = 32;

/* Large pieces in huge pages, as the engine's and the bare arrays are. */
template <class T> struct huge_allocator {
    using value_type = T;

    huge_allocator() = default;
    template <class U> huge_allocator(const huge_allocator<U> &) noexcept
    {
    }

    T *allocate(size_t n)
    {
        const size_t bytes = n * sizeof(T);
        void *memory =
                bytes >= BENCH_HUGE_BYTES
                        ? bench_huge_alloc(bytes)
                        : std::aligned_alloc(line_bytes,
                                  (bytes + line_bytes) & ~(line_bytes - 1));
        if (memory == nullptr) {
            throw std::bad_alloc();
        }
        return static_cast<T *>(memory);
    }

    void deallocate(T *memory, size_t n)
    {
        const size_t bytes = n * sizeof(T);
        if (bytes >= BENCH_HUGE_BYTES) {
            bench_huge_free(memory, bytes);
        } else {
            std::free(memory);
        }
    }

    template <class U> bool operator==(const huge_allocator<U> &) const noexcept
    {
        return true;
    }
    template <class U> bool operator!=(const huge_allocator<U> &) const noexcept
    {
        return false;
    }
};

/* The row itself in the table. */
template <size_t Bytes> struct inline_row {
    static constexpr size_t row_bytes = Bytes;
    std::array<char, Bytes> bytes;

    void set(const bench_peer_rows &rows, uint64_t row)
    {
        std::memcpy(bytes.data(), rows.rows + row * Bytes, Bytes);
    }
    const char *data(const char *, size_t) const
    {
        return bytes.data();
    }
};

/* Where the row is in one array; Bytes 0: any size. */
template <size_t Bytes> struct row_number {
    static constexpr size_t row_bytes = Bytes;
    uint32_t number;

    void set(const bench_peer_rows &, uint64_t row)
    {
        number = static_cast<uint32_t>(row);
    }
    const char *data(const char *rows, size_t bytes) const
    {
        return rows + number * bytes;
    }
};

inline void
prefetch_row(const char *row, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += line_bytes) {
        __builtin_prefetch(row + at);
    }
}

template <class Row> class absl_peer final : public bench_peer
{
  public:
    explicit absl_peer(const bench_peer_rows &from)
        : rows(from.rows), bytes(from.row_bytes)
    {
        map.reserve(from.row_count);
        for (uint64_t i = 0; i < from.row_count; i++) {
            Row row;
            row.set(from, i);
            map.emplace(from.key_at(from.context, i), row);
        }
    }

    size_t lookup(size_t n, const uint64_t *keys, unsigned distance,
            char *out) const override
    {
        return distance == 0 ? plain(n, keys, out)
                             : ahead(n, keys, distance, out);
    }

  private:
    size_t row_bytes() const
    {
        return Row::row_bytes != 0 ? Row::row_bytes : bytes;
    }

    const char *find(uint64_t key) const
    {
        const auto at = map.find(key);
        return at == map.end() ? nullptr : at->second.data(rows, row_bytes());
    }

    size_t copy(const char *row, char *out) const
    {
        if (row == nullptr) {
            return 0;
        }
        std::memcpy(out, row, row_bytes());
        return 1;
    }

    size_t plain(size_t n, const uint64_t *keys, char *out) const
    {
        size_t found = 0;
        for (size_t i = 0; i < n; i++) {
            found += copy(find(keys[i]), out + i * row_bytes());
        }
        return found;
    }

    /* Key i + 2d is prefetched, i + d found, row i copied. */
    size_t ahead(size_t n, const uint64_t *keys, size_t d, char *out) const
    {
        const char *ring[distance_max];
        size_t found = 0;
        for (size_t i = 0; i < n + 2 * d; i++) {
            if (i >= 2 * d) {
                found += copy(ring[i % d], out + (i - 2 * d) * row_bytes());
            }
            if (i >= d && i - d < n) {
                const char *row = find(keys[i - d]);
                ring[i % d] = row;
                if (row != nullptr) {
                    prefetch_row(row, row_bytes());
                }
            }
            if (i < n) {
                map.prefetch(keys[i]);
            }
        }
        return found;
    }

    absl::flat_hash_map<uint64_t, Row, absl::Hash<uint64_t>,
            std::equal_to<uint64_t>,
            huge_allocator<std::pair<const uint64_t, Row>>>
            map;
    const char *rows;
    size_t bytes;
};

template <class Row> class cuckoo_peer final : public bench_peer
{
  public:
    explicit cuckoo_peer(const bench_peer_rows &from)
        : map(from.row_count), rows(from.rows), bytes(from.row_bytes)
    {
        for (uint64_t i = 0; i < from.row_count; i++) {
            Row row;
            row.set(from, i);
            map.insert(from.key_at(from.context, i), row);
        }
    }

    /* It has no prefetch: distance does nothing. */
    size_t lookup(
            size_t n, const uint64_t *keys, unsigned, char *out) const override
    {
        const size_t size = Row::row_bytes != 0 ? Row::row_bytes : bytes;
        size_t found = 0;
        for (size_t i = 0; i < n; i++) {
            found += map.find_fn(keys[i], [&](const Row &row) {
                std::memcpy(out + i * size, row.data(rows, size), size);
            });
        }
        return found;
    }

  private:
    libcuckoo::cuckoohash_map<uint64_t, Row, absl::Hash<uint64_t>,
            std::equal_to<uint64_t>,
            huge_allocator<std::pair<const uint64_t, Row>>>
            map;
    const char *rows;
    size_t bytes;
};

template <template <class> class Peer>
bench_peer *
make_inline(const bench_peer_rows &rows)
{
    switch (rows.row_bytes) {
    case 4:
        return new Peer<inline_row<4>>(rows);
    case 32:
        return new Peer<inline_row<32>>(rows);
    case 64:
        return new Peer<inline_row<64>>(rows);
    case 128:
        return new Peer<inline_row<128>>(rows);
    case 256:
        return new Peer<inline_row<256>>(rows);
    default:
        return nullptr;
    }
}

template <template <class> class Peer>
bench_peer *
make_numbered(const bench_peer_rows &rows)
{
    switch (rows.row_bytes) {
    case 4:
        return new Peer<row_number<4>>(rows);
    case 32:
        return new Peer<row_number<32>>(rows);
    case 64:
        return new Peer<row_number<64>>(rows);
    case 128:
        return new Peer<row_number<128>>(rows);
    case 256:
        return new Peer<row_number<256>>(rows);
    default:
        return new Peer<row_number<0>>(rows);
    }
}

bench_peer *
make(bench_peer_kind kind, const bench_peer_rows &rows)
{
    switch (kind) {
    case BENCH_PEER_ABSL:
        return make_numbered<absl_peer>(rows);
    case BENCH_PEER_ABSL_INLINE:
        return make_inline<absl_peer>(rows);
    case BENCH_PEER_LIBCUCKOO:
        return make_numbered<cuckoo_peer>(rows);
    case BENCH_PEER_LIBCUCKOO_INLINE:
        return make_inline<cuckoo_peer>(rows);
    default:
        return nullptr;
    }
}

} // namespace

bool
bench_peer_has(enum bench_peer_kind kind, size_t row_bytes)
{
    const bool any_size =
            kind == BENCH_PEER_ABSL || kind == BENCH_PEER_LIBCUCKOO;

    return any_size || row_bytes == 4 || row_bytes == 32 || row_bytes == 64 ||
           row_bytes == 128 || row_bytes == 256;
}

struct bench_peer *
bench_peer_create(enum bench_peer_kind kind, const struct bench_peer_rows *rows)
{
    try {
        return make(kind, *rows);
    } catch (const std::exception &) {
        return nullptr; /* no memory, or libcuckoo's load_factor_too_low */
    }
}

void
bench_peer_destroy(struct bench_peer *peer)
{
    delete peer;
}

size_t
bench_peer_lookup(const struct bench_peer *peer, size_t n, const uint64_t *keys,
        unsigned distance, char *out)
{
    return peer->lookup(n, keys, distance, out);
}

const char *
bench_peer_str(enum bench_peer_kind kind)
{
    switch (kind) {
    case BENCH_PEER_ABSL:
        return "absl::flat_hash_map<u64, row number>";
    case BENCH_PEER_ABSL_INLINE:
        return "absl::flat_hash_map<u64, row>";
    case BENCH_PEER_LIBCUCKOO:
        return "libcuckoo::cuckoohash_map<u64, row number>";
    case BENCH_PEER_LIBCUCKOO_INLINE:
        return "libcuckoo::cuckoohash_map<u64, row>";
    default:
        return "";
    }
}
