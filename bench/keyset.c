/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/keyset.h"

#include "base/file.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define TRACE_BYTES_MAX ((size_t)16 << 30)

/** The keys of a trace as they came. */
struct keys {
    uint64_t *values;
    size_t count;
};

static uint32_t
little(const unsigned char *bytes, size_t n)
{
    uint32_t value = 0;

    for (size_t i = 0; i < n; i++) {
        value |= (uint32_t)bytes[i] << (8 * i);
    }
    return value;
}

/* A one-dimensional array of 8-byte integers, versions 1 and 2. */
static rps_status
read_npy(struct keys *keys, const char *bytes, size_t length, const char *path,
        struct rps_error *error)
{
    const unsigned char *raw = (const unsigned char *)bytes;
    const size_t prefix = length > 6 && raw[6] == 1 ? 10 : 12;
    size_t start = 0;
    char *header = NULL;

    if (length < 12) {
        return rps_fail(error, RPS_E_INVAL, "%s: ends in its header", path);
    }
    start = prefix + little(raw + 8, prefix - 8);
    if (start > length || (length - start) % 8 != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: its size does not fit its header: want whole keys of 8 "
                "bytes",
                path);
    }
    header = strndup(bytes + prefix, start - prefix);
    if (header == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    if (strstr(header, "'<u8'") == NULL && strstr(header, "'<i8'") == NULL) {
        rps_fail(error, RPS_E_INVAL, "%s: dtype must be <u8 or <i8; it has %s",
                path, header);
        free(header);
        return RPS_E_INVAL;
    }
    free(header);
    keys->count = (length - start) / 8;
    keys->values = malloc(keys->count * 8 + 1);
    if (keys->values == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < keys->count; i++) {
        const unsigned char *at = raw + start + 8 * i;
        keys->values[i] = (uint64_t)little(at + 4, 4) << 32 | little(at, 4);
    }
    return RPS_OK;
}

static bool
parse_key(const char *text, uint64_t *key)
{
    int64_t number = 0;

    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return rps_parse_hex64(text + 2, key);
    }
    if (text[0] == '-' && rps_parse_i64(text, &number)) {
        *key = (uint64_t)number;
        return true;
    }
    return rps_parse_u64(text, key);
}

static size_t
count_lines(const char *bytes, size_t length)
{
    size_t lines = 1;

    for (size_t i = 0; i < length; i++) {
        lines += bytes[i] == '\n';
    }
    return lines;
}

/* Cuts `bytes` into lines. Empty lines are skipped. */
static rps_status
read_text(struct keys *keys, char *bytes, size_t length, const char *path,
        struct rps_error *error)
{
    char *line = bytes;

    keys->values = calloc(count_lines(bytes, length), sizeof(uint64_t));
    if (keys->values == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    for (size_t number = 1; line < bytes + length; number++) {
        char *end = memchr(line, '\n', (size_t)(bytes + length - line));
        char *next = end == NULL ? bytes + length : end + 1;
        if (end != NULL) {
            *end = '\0';
            if (end > line && end[-1] == '\r') {
                end[-1] = '\0';
            }
        }
        if (*line != '\0' && !parse_key(line, &keys->values[keys->count++])) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s:%zu: \"%.40s\" is not a key: a 64-bit integer, "
                    "decimal or 0x and hex digits",
                    path, number, line);
        }
        line = next;
    }
    return RPS_OK;
}

static rps_status
read_trace(struct keys *keys, const char *path, struct rps_error *error)
{
    char *bytes = NULL;
    size_t length = 0;
    rps_status status =
            rps_file_read(path, TRACE_BYTES_MAX, &bytes, &length, error);

    if (status != RPS_OK) {
        return status;
    }
    if (length >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0) {
        status = read_npy(keys, bytes, length, path, error);
    } else {
        status = read_text(keys, bytes, length, path, error);
    }
    free(bytes);
    if (status == RPS_OK && keys->count == 0) {
        status = rps_fail(error, RPS_E_INVAL, "%s: no key in it", path);
    }
    if (status == RPS_OK && keys->count > BENCH_ROWS_MAX) {
        status = rps_fail(error, RPS_E_INVAL, "%s: %zu keys; at most %u", path,
                keys->count, BENCH_ROWS_MAX);
    }
    return status;
}

static int
compare_keys(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static size_t
sort_unique(uint64_t *keys, size_t count)
{
    size_t kept = 0;

    qsort(keys, count, sizeof(*keys), compare_keys);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || keys[i] != keys[i - 1]) {
            keys[kept++] = keys[i];
        }
    }
    return kept;
}

static const uint64_t *
find_key(const struct bench_keyset *set, size_t distinct, uint64_t key)
{
    return bsearch(&key, set->keys, distinct, sizeof(key), compare_keys);
}

/* Distinct keys in ascending order, then made-up ones up to `rows`. */
static rps_status
build(struct bench_keyset *set, const struct keys *keys, uint64_t rows)
{
    const size_t room = keys->count > rows ? keys->count : (size_t)rows;
    size_t distinct = 0;

    set->keys = calloc(room, sizeof(*set->keys));
    set->trace = calloc(keys->count, sizeof(*set->trace));
    if (set->keys == NULL || set->trace == NULL) {
        return RPS_E_NOMEM;
    }
    memcpy(set->keys, keys->values, keys->count * sizeof(*set->keys));
    distinct = sort_unique(set->keys, keys->count);
    for (size_t i = 0; i < keys->count; i++) {
        set->trace[i] = (uint32_t)(find_key(set, distinct, keys->values[i]) -
                                   set->keys);
    }
    set->trace_count = keys->count;
    set->rows = distinct;
    for (uint64_t i = 0; set->rows < rows; i++) {
        if (find_key(set, distinct, rps_mix64(i)) == NULL) {
            set->keys[set->rows++] = rps_mix64(i);
        }
    }
    return RPS_OK;
}

rps_status
bench_keyset_init(struct bench_keyset *set, uint64_t rows, const char *trace,
        struct rps_error *error)
{
    struct keys keys = {0};
    rps_status status = RPS_OK;

    *set = (struct bench_keyset){.rows = rows};
    if (trace == NULL) {
        return RPS_OK;
    }
    status = read_trace(&keys, trace, error);
    if (status == RPS_OK) {
        status = build(set, &keys, rows);
        if (status != RPS_OK) {
            rps_fail(error, status, "out of memory");
        }
    }
    free(keys.values);
    return status;
}

void
bench_keyset_finish(struct bench_keyset *set)
{
    free(set->keys);
    free(set->trace);
    *set = (struct bench_keyset){0};
}
