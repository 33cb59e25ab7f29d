/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/stream.h"

#include "base/clock.h"
#include "bench/net/pipe.h"
#include "bench/net/tidy.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/** Set before the first message, which orders them. */
struct bench_message_sizes {
    _Atomic size_t request;
    _Atomic size_t reply;
};

/** A connection. */
struct bench_flow {
    struct bench_stream *stream;
    struct bench_pipe pipe;
    struct bench_end end; /* ours */
    char *request;        /* one message */
    char *replies;        /* [depth][reply] */
    uint64_t starts[BENCH_DEPTH_MAX];
    pthread_t thread;
    uint64_t deadline_ns;
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t answered;
    struct bench_series micros;
    bool failed; /* the child is gone */
};

/* --- the other process --------------------------------------------------- */

struct answerer {
    struct bench_stream *stream;
    struct bench_pipe *pipe;
    pthread_t thread;
};

static bool
get_all(struct bench_end *end, char *into, size_t n)
{
    while (n > 0) {
        const ssize_t got = end->ops->get(end, into, n, true);
        if (got < 0) {
            return false;
        }
        into += got;
        n -= (size_t)got;
    }
    return true;
}

static bool
put_all(struct bench_end *end, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t put = end->ops->put(end, bytes, n, true);
        if (put < 0) {
            return false;
        }
        bytes += put;
        n -= (size_t)put;
    }
    return true;
}

/* The size is known once a first byte is there. */
static void *
answer(void *context)
{
    const struct answerer *self = context;
    struct bench_stream *stream = self->stream;
    struct bench_end end;
    struct bench_rows_reader reader;
    struct rps_error error;
    char first[RPS_RING_ALIGN];
    char *buffer = NULL;
    size_t request = 0;
    size_t reply = 0;

    if (bench_pipe_end(self->pipe, true, &end, &error) != RPS_OK ||
            !bench_rows_reader_init(
                    &reader, &stream->rows, (uint64_t)(uintptr_t)self) ||
            !get_all(&end, first, sizeof(first))) {
        return NULL;
    }
    request = atomic_load(&stream->sizes->request);
    reply = atomic_load(&stream->sizes->reply);
    buffer = malloc(request > reply ? request : reply);
    if (buffer == NULL) {
        return NULL;
    }
    memset(buffer, 1, request > reply ? request : reply);
    for (size_t had = sizeof(first);; had = 0) {
        if (!get_all(&end, buffer, request - had)) {
            break;
        }
        bench_rows_gather(&reader, buffer, reply);
        if (!put_all(&end, buffer, reply)) {
            break;
        }
    }
    bench_rows_reader_finish(&reader);
    free(buffer);
    return NULL;
}

static void
run_child(struct bench_stream *stream)
{
    struct answerer *answerers =
            calloc(stream->connections, sizeof(*answerers));

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (!bench_rows_init(&stream->rows)) {
        _exit(EXIT_FAILURE);
    }
    for (unsigned i = 0; answerers != NULL && i < stream->connections; i++) {
        answerers[i].stream = stream;
        answerers[i].pipe = &stream->flows[i].pipe;
        if (pthread_create(&answerers[i].thread, NULL, answer, &answerers[i]) !=
                0) {
            _exit(EXIT_FAILURE);
        }
    }
    for (unsigned i = 0; answerers != NULL && i < stream->connections; i++) {
        pthread_join(answerers[i].thread, NULL);
    }
    _exit(EXIT_SUCCESS);
}

/* --- ours ---------------------------------------------------------------- */

rps_status
bench_stream_init(struct bench_stream *stream, struct rps_error *error)
{
    rps_status status = RPS_OK;

    stream->flows = calloc(stream->connections, sizeof(*stream->flows));
    stream->sizes = mmap(NULL, sizeof(*stream->sizes), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stream->flows == NULL || stream->sizes == MAP_FAILED) {
        stream->sizes = NULL;
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    for (unsigned i = 0; i < stream->connections && status == RPS_OK; i++) {
        stream->flows[i].stream = stream;
        status = bench_pipe_init(
                &stream->flows[i].pipe, stream->transport, error);
    }
    if (status == RPS_OK && stream->transport == RPS_TRANSPORT_LOCAL) {
        return bench_rows_init(&stream->rows)
                       ? RPS_OK
                       : rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    if (status != RPS_OK) {
        return status;
    }
    stream->child = bench_child_start();
    if (stream->child == 0) {
        run_child(stream);
    }
    if (stream->child < 0) {
        stream->child = 0;
        return rps_fail(error, RPS_E_IO, "fork: %s", strerror(errno));
    }
    for (unsigned i = 0; i < stream->connections && status == RPS_OK; i++) {
        struct bench_flow *flow = &stream->flows[i];
        status = bench_pipe_end(&flow->pipe, false, &flow->end, error);
    }
    return status;
}

void
bench_stream_finish(struct bench_stream *stream)
{
    bench_child_stop(stream->child);
    for (unsigned i = 0; stream->flows != NULL && i < stream->connections;
            i++) {
        struct bench_flow *flow = &stream->flows[i];
        bench_end_finish(&flow->end);
        bench_series_finish(&flow->micros);
        free(flow->request);
        free(flow->replies);
    }
    free(stream->flows);
    bench_rows_finish(&stream->rows);
    if (stream->sizes != NULL) {
        munmap(stream->sizes, sizeof(*stream->sizes));
    }
    *stream = (struct bench_stream){0};
}

rps_status
bench_stream_set_sizes(struct bench_stream *stream, size_t request,
        size_t reply, struct rps_error *error)
{
    const size_t whole = RPS_RING_ALIGN; /* as frames lie in the ring */

    request = (request + whole - 1) / whole * whole;
    reply = (reply + whole - 1) / whole * whole;
    assert(request > 0 && reply > 0);
    atomic_store(&stream->sizes->request, request);
    atomic_store(&stream->sizes->reply, reply);
    for (unsigned i = 0; i < stream->connections; i++) {
        struct bench_flow *flow = &stream->flows[i];
        flow->request = malloc(request);
        flow->replies = malloc(reply * stream->depth);
        if (flow->request == NULL || flow->replies == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "out of memory");
        }
        memset(flow->request, 1, request);
        memset(flow->replies, 2, reply * stream->depth);
    }
    return RPS_OK;
}

static void
note_answer(struct bench_flow *flow)
{
    const uint64_t now = rps_clock_ns();
    const uint64_t start = flow->starts[flow->answered % flow->stream->depth];

    bench_series_add(&flow->micros, (double)(now - start) / 1e3);
    flow->last_ns = now;
    flow->answered++;
}

/* A copy of the rows is all that it takes in process, or their gathering. */
static void
copy_messages(struct bench_flow *flow)
{
    struct bench_rows_reader reader;
    const size_t depth = flow->stream->depth;
    const size_t reply = atomic_load(&flow->stream->sizes->reply);
    char *from = malloc(reply);

    flow->failed = from == NULL ||
                   !bench_rows_reader_init(&reader, &flow->stream->rows, 1);
    if (flow->failed) {
        free(from);
        return;
    }
    memset(from, 1, reply);
    do {
        const size_t at = flow->answered % depth;
        flow->starts[at] = rps_clock_ns();
        if (reader.pool != NULL) {
            bench_rows_gather(&reader, flow->replies + at * reply, reply);
        } else {
            memcpy(flow->replies + at * reply, from, reply);
        }
        __asm__ volatile("" : : "r"(flow->replies) : "memory");
        note_answer(flow);
    } while (flow->last_ns < flow->deadline_ns);
    bench_rows_reader_finish(&reader);
    free(from);
}

static void
exchange_messages(struct bench_flow *flow)
{
    struct bench_end *end = &flow->end;
    const size_t depth = flow->stream->depth;
    const size_t request = atomic_load(&flow->stream->sizes->request);
    const size_t reply = atomic_load(&flow->stream->sizes->reply);
    uint64_t started = 0;
    size_t out = 0; /* bytes of requests to write */
    size_t in = 0;  /* bytes of the reply that is read */
    bool over = false;

    while (!flow->failed && (!over || flow->answered < started)) {
        ssize_t put = 0;
        ssize_t got = 0;
        for (; !over && started < flow->answered + depth; started++) {
            flow->starts[started % depth] = rps_clock_ns();
            out += request;
        }
        if (out > 0) { /* up to the end of the message that has begun */
            const size_t n = (out - 1) % request + 1;
            put = end->ops->put(end, flow->request + (request - n), n, false);
            out -= put > 0 ? (size_t)put : 0;
            if (put > 0 && out > 0) {
                continue;
            }
        }
        got = end->ops->get(end,
                flow->replies + flow->answered % depth * reply + in, reply - in,
                out == 0);
        in += got > 0 ? (size_t)got : 0;
        if (in == reply) {
            in = 0;
            note_answer(flow);
            over = flow->last_ns >= flow->deadline_ns;
        }
        if (put == 0 && got == 0 && out > 0) {
            end->ops->wait(end);
        }
        flow->failed = put < 0 || got < 0;
    }
}

static void *
run_flow(void *context)
{
    struct bench_flow *flow = context;

    flow->answered = 0;
    flow->micros.count = 0;
    flow->first_ns = rps_clock_ns();
    if (flow->stream->transport == RPS_TRANSPORT_LOCAL) {
        copy_messages(flow);
    } else {
        exchange_messages(flow);
    }
    return NULL;
}

static rps_status
gather(struct bench_stream *stream, struct bench_slice *slice,
        struct rps_error *error)
{
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;

    for (unsigned i = 0; i < stream->connections; i++) {
        const struct bench_flow *flow = &stream->flows[i];
        if (flow->failed) {
            return rps_fail(error, RPS_E_IO,
                    "bare messages: the process that "
                    "answers them is gone");
        }
        first = flow->first_ns < first ? flow->first_ns : first;
        last = flow->last_ns > last ? flow->last_ns : last;
        slice->requests += flow->answered;
        for (size_t j = 0; j < flow->micros.count; j++) {
            bench_series_add(&slice->micros, flow->micros.values[j]);
        }
    }
    slice->seconds = (double)(last - first) / 1e9;
    slice->ids = slice->requests * stream->ids;
    slice->bytes =
            slice->requests * (atomic_load(&stream->sizes->request) +
                                      atomic_load(&stream->sizes->reply));
    slice->server_cpu_seconds = (double)NAN;
    return RPS_OK;
}

rps_status
bench_stream_run(void *context, double seconds, struct bench_slice *slice,
        struct rps_error *error)
{
    struct bench_stream *stream = context;
    const uint64_t deadline = rps_clock_ns() + (uint64_t)(seconds * 1e9);
    unsigned started = 0;

    for (; started < stream->connections; started++) {
        struct bench_flow *flow = &stream->flows[started];
        flow->deadline_ns = deadline;
        if (pthread_create(&flow->thread, NULL, run_flow, flow) != 0) {
            break;
        }
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(stream->flows[i].thread, NULL);
    }
    return started == stream->connections
                   ? gather(stream, slice, error)
                   : rps_fail(error, RPS_E_NOMEM, "no thread for connection %u",
                             started);
}
