/* SPDX-License-Identifier: Apache-2.0 */
/* redis-server, asked with MGET by hiredis; a key is its 8 bytes. */
#include "bench/net/versus.h"

#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct redis {
    redisContext *context;
    const char **words; /* [word_room] of a command */
    size_t *lengths;    /* [word_room] */
};

static void
redis_exec(const struct bench_rival *rival)
{
    char port[16];

    snprintf(port, sizeof(port), "%u", rival->port);
    execlp("redis-server", "redis-server", "--port", port, "--bind",
            "127.0.0.1", "--unixsocket", rival->path, "--unixsocketperm", "700",
            "--dir", rival->folder, "--save", "", "--appendonly", "no",
            "--daemonize", "no", (char *)NULL);
}

static void
redis_close(void *handle)
{
    struct redis *redis = handle;

    redisFree(redis->context);
    free(redis->words);
    free(redis->lengths);
    free(redis);
}

static void *
redis_open(const struct bench_rival *rival)
{
    struct redis *redis = calloc(1, sizeof(*redis));
    const size_t words = rival->args->batch + 3;

    if (redis == NULL) {
        return NULL;
    }
    redis->words = calloc(words, sizeof(*redis->words));
    redis->lengths = calloc(words, sizeof(*redis->lengths));
    redis->context = rival->is_unix ? redisConnectUnix(rival->path)
                                    : redisConnect("127.0.0.1", rival->port);
    if (redis->words == NULL || redis->lengths == NULL ||
            redis->context == NULL || redis->context->err != 0) {
        if (redis->context != NULL) {
            redisFree(redis->context);
        }
        free(redis->words);
        free(redis->lengths);
        free(redis);
        return NULL;
    }
    return redis;
}

static rps_status
failed(const struct redis *redis, struct rps_error *error)
{
    return rps_fail(error, RPS_E_IO, "redis: %s", redis->context->errstr);
}

/* The next reply; NULL: failed, and said. */
static redisReply *
next_reply(const struct redis *redis, struct rps_error *error)
{
    void *reply = NULL;

    if (redisGetReply(redis->context, &reply) != REDIS_OK) {
        failed(redis, error);
        return NULL;
    }
    return reply;
}

static rps_status
redis_fill(void *handle, const uint64_t *keys, const char *rows, size_t n,
        size_t row_bytes, struct rps_error *error)
{
    const struct redis *redis = handle;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < n; i++) {
        if (redisAppendCommand(redis->context, "SET %b %b", &keys[i],
                    sizeof(*keys), rows + i * row_bytes,
                    row_bytes) != REDIS_OK) {
            return failed(redis, error);
        }
    }
    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        redisReply *reply = next_reply(redis, error);
        if (reply == NULL) {
            return RPS_E_IO;
        }
        if (reply->type == REDIS_REPLY_ERROR) {
            status = rps_fail(error, RPS_E_IO, "redis: SET: %s", reply->str);
        }
        freeReplyObject(reply);
    }
    return status;
}

static rps_status
redis_ask(void *handle, const uint64_t *keys, size_t n, struct rps_error *error)
{
    struct redis *redis = handle;

    redis->words[0] = "MGET";
    redis->lengths[0] = 4;
    for (size_t i = 0; i < n; i++) {
        redis->words[i + 1] = (const char *)&keys[i];
        redis->lengths[i + 1] = sizeof(*keys);
    }
    return redisAppendCommandArgv(redis->context, (int)n + 1, redis->words,
                   redis->lengths) == REDIS_OK
                   ? RPS_OK
                   : failed(redis, error);
}

static rps_status
redis_take(void *handle, size_t n, size_t row_bytes, char *rows,
        struct rps_error *error)
{
    const struct redis *redis = handle;
    redisReply *reply = next_reply(redis, error);
    rps_status status = RPS_OK;

    if (reply == NULL) {
        return RPS_E_IO;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != n) {
        status = rps_fail(error, RPS_E_CORRUPT, "redis: MGET of %zu keys: %s",
                n,
                reply->type == REDIS_REPLY_ERROR ? reply->str
                                                 : "another number of rows");
    }
    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        const redisReply *element = reply->element[i];
        if (element->type != REDIS_REPLY_STRING || element->len != row_bytes) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "wrong answer of redis: no row for a key that it holds");
            break;
        }
        memcpy(rows + i * row_bytes, element->str, row_bytes);
    }
    freeReplyObject(reply);
    return status;
}

const struct bench_rival_ops *
bench_redis_ops(void)
{
    static const struct bench_rival_ops ops = {.exec = redis_exec,
            .open = redis_open,
            .close = redis_close,
            .fill = redis_fill,
            .ask = redis_ask,
            .take = redis_take};

    return &ops;
}
