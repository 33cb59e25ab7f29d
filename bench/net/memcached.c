/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcached, asked with mget by libmemcached; a key is 11 letters of base64.
 * A connection of libmemcached has one mget in flight, so there are as many
 * connections as requests in flight.
 */
#include "bench/net/versus.h"

#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_CHARS 11u
#define CONNS     8u
#define ROW_SPARE 160u /* a row's key, header and slab rounding, generously */

struct cached {
    memcached_st *conns[CONNS];
    memcached_result_st results[CONNS]; /* in place: _fetch_result() would
                                           free one of the heap at the end */
    uint64_t asked;
    uint64_t taken;
    char (*texts)[KEY_CHARS + 1]; /* [batch] */
    const char **words;           /* [batch] */
    size_t *lengths;              /* [batch] */
};

static void
cached_exec(const struct bench_rival *rival)
{
    const size_t bytes =
            rival->set->rows * (rival->row_bytes + ROW_SPARE) * 3 / 2;
    char port[16];
    char megabytes[32];

    snprintf(port, sizeof(port), "%u", rival->port);
    snprintf(megabytes, sizeof(megabytes), "%zu", 64 + (bytes >> 20));
    if (rival->is_unix) {
        execlp("memcached", "memcached", "-s", rival->path, "-a", "0700", "-m",
                megabytes, "-u", "root", (char *)NULL);
    } else {
        execlp("memcached", "memcached", "-l", "127.0.0.1", "-p", port, "-U",
                "0", "-m", megabytes, "-u", "root", (char *)NULL);
    }
}

static void
cached_close(void *handle)
{
    struct cached *cached = handle;

    for (size_t i = 0; i < CONNS && cached->conns[i] != NULL; i++) {
        memcached_result_free(&cached->results[i]);
        memcached_free(cached->conns[i]);
    }
    free(cached->texts);
    free(cached->words);
    free(cached->lengths);
    free(cached);
}

static memcached_st *
connect_one(const struct bench_rival *rival)
{
    memcached_st *conn = memcached_create(NULL);

    if (conn == NULL) {
        return NULL;
    }
    memcached_behavior_set(conn, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    if ((rival->is_unix ? memcached_server_add_unix_socket(conn, rival->path)
                        : memcached_server_add(conn, "127.0.0.1",
                                  rival->port)) != MEMCACHED_SUCCESS ||
            memcached_version(conn) != MEMCACHED_SUCCESS) {
        memcached_free(conn);
        return NULL;
    }
    return conn;
}

static void *
cached_open(const struct bench_rival *rival)
{
    struct cached *cached = calloc(1, sizeof(*cached));
    const size_t batch = rival->args->batch;
    bool done = true;

    if (cached == NULL) {
        return NULL;
    }
    cached->texts = calloc(batch, sizeof(*cached->texts));
    cached->words = calloc(batch, sizeof(*cached->words));
    cached->lengths = calloc(batch, sizeof(*cached->lengths));
    done = cached->texts != NULL && cached->words != NULL &&
           cached->lengths != NULL;
    for (size_t i = 0; i < CONNS && done; i++) {
        cached->conns[i] = connect_one(rival);
        done = cached->conns[i] != NULL &&
               memcached_result_create(cached->conns[i], &cached->results[i]) !=
                       NULL;
    }
    if (!done) {
        cached_close(cached);
        return NULL;
    }
    return cached;
}

static void
key_text(uint64_t key, char text[KEY_CHARS + 1])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789+/";

    for (unsigned i = 0; i < KEY_CHARS; i++) {
        text[i] = letters[key & 63];
        key >>= 6;
    }
    text[KEY_CHARS] = '\0';
}

static rps_status
failed(memcached_st *conn, const char *doing, struct rps_error *error)
{
    return rps_fail(error, RPS_E_IO, "memcached: %s: %s", doing,
            memcached_last_error_message(conn));
}

static rps_status
cached_fill(void *handle, const uint64_t *keys, const char *rows, size_t n,
        size_t row_bytes, struct rps_error *error)
{
    struct cached *cached = handle;
    memcached_st *conn = cached->conns[0];
    rps_status status = RPS_OK;

    memcached_behavior_set(conn, MEMCACHED_BEHAVIOR_NOREPLY, 1);
    memcached_behavior_set(conn, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        char text[KEY_CHARS + 1];
        memcached_return_t set = MEMCACHED_SUCCESS;
        key_text(keys[i], text);
        set = memcached_set(
                conn, text, KEY_CHARS, rows + i * row_bytes, row_bytes, 0, 0);
        if (set != MEMCACHED_SUCCESS && set != MEMCACHED_BUFFERED) {
            status = failed(conn, "set", error);
        }
    }
    if (status == RPS_OK &&
            memcached_flush_buffers(conn) != MEMCACHED_SUCCESS) {
        status = failed(conn, "set", error);
    }
    memcached_behavior_set(conn, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 0);
    memcached_behavior_set(conn, MEMCACHED_BEHAVIOR_NOREPLY, 0);
    return status;
}

static rps_status
cached_ask(
        void *handle, const uint64_t *keys, size_t n, struct rps_error *error)
{
    struct cached *cached = handle;
    memcached_st *conn = cached->conns[cached->asked++ % CONNS];

    for (size_t i = 0; i < n; i++) {
        key_text(keys[i], cached->texts[i]);
        cached->words[i] = cached->texts[i];
        cached->lengths[i] = KEY_CHARS;
    }
    return memcached_mget(conn, cached->words, cached->lengths, n) ==
                           MEMCACHED_SUCCESS
                   ? RPS_OK
                   : failed(conn, "mget", error);
}

/* A key that stands twice is answered twice, in its place. */
static rps_status
cached_take(void *handle, size_t n, size_t row_bytes, char *rows,
        struct rps_error *error)
{
    struct cached *cached = handle;
    const size_t at = cached->taken++ % CONNS;
    memcached_st *conn = cached->conns[at];
    memcached_result_st *result = &cached->results[at];
    memcached_return_t got = MEMCACHED_SUCCESS;
    size_t count = 0;

    while (memcached_fetch_result(conn, result, &got) != NULL) {
        if (count < n && memcached_result_length(result) == row_bytes) {
            memcpy(rows + count * row_bytes, memcached_result_value(result),
                    row_bytes);
        }
        count++;
    }
    if (got != MEMCACHED_END && got != MEMCACHED_NOTFOUND &&
            got != MEMCACHED_SUCCESS) {
        return failed(conn, "mget", error);
    }
    return count == n ? RPS_OK
                      : rps_fail(error, RPS_E_CORRUPT,
                                "wrong answer of memcached: %zu rows for %zu "
                                "keys that it holds",
                                count, n);
}

const struct bench_rival_ops *
bench_memcached_ops(void)
{
    static const struct bench_rival_ops ops = {.exec = cached_exec,
            .open = cached_open,
            .close = cached_close,
            .fill = cached_fill,
            .ask = cached_ask,
            .take = cached_take};

    return &ops;
}
