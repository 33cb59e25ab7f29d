/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer a thread: a list of chunks of records, and the strings they point
 * to. Buffers stay when a session ends, and when their thread ends: another
 * thread takes them over. What they hold goes with the session.
 *
 *   sum of the chunks' and strings' bytes <= bytes_max + one chunk a thread
 */
#include "client/profile/collect.h"

#include "base/clock.h"
#include "client/profile/session.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_RECORDS 512u
#define CACHE_SLOTS   256u /* a power of two */

struct rps_profile_chunk {
    struct rps_profile_chunk *next;
    size_t count;
    struct rps_profile_record records[CHUNK_RECORDS];
};

struct rps_profile_kept {
    struct rps_profile_kept *next;
    struct rps_strings strings;
};

/* The caller's pointer to a string, and where its text was kept before. */
struct cached {
    const char *given;
    const char *kept;
};

struct buffer {
    struct buffer *next;  /* set before it is in the list */
    bool taken;           /* registry.lock: a living thread has it */
    pthread_mutex_t lock; /* guards what follows; free but for the end */
    struct rps_profile_chunk *chunks; /* newest first; full but for that */
    struct rps_strings strings;
    size_t strings_told; /* of strings.bytes, counted in registry.bytes */
    uint64_t dropped;
    struct cached cache[CACHE_SLOTS];
};

static struct {
    pthread_mutex_t lock; /* guards what follows, up to the atomics */
    pthread_cond_t moved;
    pthread_once_t once;
    pthread_key_t key; /* set once */
    bool has_key;      /* set once */
    struct buffer *buffers;
    uint64_t first; /* 0: disarmed */
    uint64_t last;
    bool ended;
    struct rps_profile_step_span *steps; /* [step_capacity] */
    size_t step_count;
    size_t step_capacity;
    bool step_open;

    /* Relaxed: whoever sees an old value collects one span more or less;
     * that a session is over is asked again under the buffer's lock. */
    atomic_bool on;
    atomic_bool armed;
    /* Relaxed: numbers, read without an order. */
    _Atomic uint64_t bytes_max;
    _Atomic uint64_t step;
    _Atomic uint64_t bytes;
    _Atomic uint64_t dropped; /* of threads without a buffer */
} registry = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .moved = PTHREAD_COND_INITIALIZER,
        .once = PTHREAD_ONCE_INIT,
};

static _Thread_local struct buffer *own;

bool
rps_profile_is_on(void)
{
    return atomic_load_explicit(&registry.on, memory_order_relaxed);
}

/* --- buffers ------------------------------------------------------------- */

static void
let_go(void *context)
{
    struct buffer *buffer = context;

    (void)pthread_mutex_lock(&registry.lock);
    buffer->taken = false;
    (void)pthread_mutex_unlock(&registry.lock);
}

static void
make_key(void)
{
    registry.has_key = pthread_key_create(&registry.key, let_go) == 0;
}

static struct buffer *
take_buffer_locked(void)
{
    struct buffer *buffer = registry.buffers;

    while (buffer != NULL && buffer->taken) {
        buffer = buffer->next;
    }
    if (buffer == NULL) {
        buffer = calloc(1, sizeof(*buffer));
        if (buffer == NULL) {
            return NULL;
        }
        (void)pthread_mutex_init(&buffer->lock, NULL);
        buffer->next = registry.buffers;
        registry.buffers = buffer;
    }
    buffer->taken = true;
    return buffer;
}

static struct buffer *
own_buffer(void)
{
    if (own == NULL) {
        (void)pthread_once(&registry.once, make_key);
        (void)pthread_mutex_lock(&registry.lock);
        own = take_buffer_locked();
        (void)pthread_mutex_unlock(&registry.lock);
        if (own != NULL && registry.has_key) {
            (void)pthread_setspecific(registry.key, own);
        }
    }
    return own;
}

/* Room for `bytes` more in the session. */
static bool
may_take(uint64_t bytes)
{
    if (atomic_fetch_add_explicit(
                &registry.bytes, bytes, memory_order_relaxed) +
                    bytes <=
            atomic_load_explicit(&registry.bytes_max, memory_order_relaxed)) {
        return true;
    }
    atomic_fetch_sub_explicit(&registry.bytes, bytes, memory_order_relaxed);
    return false;
}

static struct rps_profile_record *
next_record(struct buffer *buffer)
{
    struct rps_profile_chunk *chunk = buffer->chunks;

    if (chunk == NULL || chunk->count == CHUNK_RECORDS) {
        if (!may_take(sizeof(*chunk))) {
            return NULL;
        }
        chunk = malloc(sizeof(*chunk));
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = buffer->chunks;
        chunk->count = 0;
        buffer->chunks = chunk;
    }
    return &chunk->records[chunk->count];
}

/*
 * Most names come again from the same place: that text is still the one is
 * cheaper to see than to hash it. Sets *good to false without memory.
 */
static const char *
keep(struct buffer *buffer, const char *text, bool *good)
{
    struct cached *cached =
            &buffer->cache[((uintptr_t)text ^ ((uintptr_t)text >> 8)) &
                           (CACHE_SLOTS - 1)];

    if (text == NULL) {
        return NULL;
    }
    if (cached->given != text || strcmp(cached->kept, text) != 0) {
        const char *kept = rps_strings_keep(&buffer->strings, text);

        if (kept == NULL) {
            *good = false;
            return NULL;
        }
        *cached = (struct cached){.given = text, .kept = kept};
    }
    return cached->kept;
}

/* What the strings have grown by counts, too. */
static bool
count_strings(struct buffer *buffer)
{
    const size_t grown = buffer->strings.bytes - buffer->strings_told;

    if (grown == 0) {
        return true;
    }
    buffer->strings_told = buffer->strings.bytes;
    if (!may_take(grown)) { /* they are there: the next ones find no room */
        atomic_fetch_add_explicit(&registry.bytes, grown, memory_order_relaxed);
        return false;
    }
    return true;
}

static void
put_locked(struct buffer *buffer, const struct rps_profile_record *given)
{
    struct rps_profile_record *record = next_record(buffer);
    bool good = record != NULL;

    if (good) {
        *record = *given;
        record->span.name = keep(buffer, given->span.name, &good);
        record->span.track = keep(buffer, given->span.track, &good);
        record->span.shapes = keep(buffer, given->span.shapes, &good);
        good = good && count_strings(buffer);
    }
    if (good) {
        buffer->chunks->count++;
    } else {
        buffer->dropped++;
    }
}

static void
put(const struct rps_profile_record *record)
{
    struct buffer *buffer = own_buffer();

    if (buffer == NULL) {
        atomic_fetch_add_explicit(&registry.dropped, 1, memory_order_relaxed);
        return;
    }
    (void)pthread_mutex_lock(&buffer->lock);
    if (rps_profile_is_on()) {
        put_locked(buffer, record);
    }
    (void)pthread_mutex_unlock(&buffer->lock);
}

/* --- adding -------------------------------------------------------------- */

void
rps_profile_add(const struct rps_profile_span *span)
{
    struct rps_profile_record record;

    if (!rps_profile_is_on()) {
        return;
    }
    assert(span->class < RPS_PROFILE_CLASSES && span->type != NULL);
    record = (struct rps_profile_record){.span = *span};
    if (record.span.step == 0) {
        record.span.step =
                atomic_load_explicit(&registry.step, memory_order_relaxed);
    }
    put(&record);
}

void
rps_profile_figure(const char *name, uint64_t ns, double value)
{
    struct rps_profile_record record;

    if (!rps_profile_is_on()) {
        return;
    }
    record = (struct rps_profile_record){
            .span = {.type = "figure",
                    .name = name,
                    .start_ns = ns,
                    .end_ns = ns,
                    .step = atomic_load_explicit(
                            &registry.step, memory_order_relaxed)},
            .value = value,
            .is_figure = true,
    };
    put(&record);
}

/* --- steps --------------------------------------------------------------- */

static bool
reserve_step_locked(void)
{
    struct rps_profile_step_span *grown;
    size_t capacity;

    if (registry.step_count < registry.step_capacity) {
        return true;
    }
    capacity = 2 * registry.step_capacity + 64;
    grown = realloc(registry.steps, capacity * sizeof(*grown));
    if (grown == NULL || registry.step_count >= RPS_PROFILE_STEPS_MAX) {
        registry.steps = grown != NULL ? grown : registry.steps;
        return false;
    }
    registry.steps = grown;
    registry.step_capacity = capacity;
    return true;
}

static void
close_step_locked(uint64_t now)
{
    if (registry.step_open) {
        registry.steps[registry.step_count - 1].end_ns = now;
        registry.step_open = false;
    }
}

static void
open_step_locked(uint64_t step, uint64_t now)
{
    if (reserve_step_locked()) {
        registry.steps[registry.step_count++] =
                (struct rps_profile_step_span){.step = step, .start_ns = now};
        registry.step_open = true;
    }
}

static void
end_locked(void)
{
    close_step_locked(rps_clock_ns());
    registry.ended = true;
    atomic_store_explicit(&registry.on, false, memory_order_relaxed);
    atomic_store_explicit(&registry.armed, false, memory_order_relaxed);
    (void)pthread_cond_broadcast(&registry.moved);
}

void
rps_profile_step(uint64_t step)
{
    uint64_t now;

    if (!atomic_load_explicit(&registry.armed, memory_order_relaxed)) {
        return;
    }
    (void)pthread_mutex_lock(&registry.lock);
    now = rps_clock_ns();
    atomic_store_explicit(&registry.step, step, memory_order_relaxed);
    if (registry.ended) {
        /* another thread was faster */
    } else if (step > registry.last) {
        end_locked();
    } else {
        close_step_locked(now);
        if (step >= registry.first) {
            open_step_locked(step, now);
            atomic_store_explicit(&registry.on, true, memory_order_relaxed);
        }
    }
    (void)pthread_mutex_unlock(&registry.lock);
}

/* --- sessions ------------------------------------------------------------ */

void
rps_profile_arm(uint64_t first, uint64_t last, uint64_t bytes_max)
{
    assert(first > 0 && first <= last);
    (void)pthread_mutex_lock(&registry.lock);
    assert(registry.first == 0);
    registry.first = first;
    registry.last = last;
    registry.ended = false;
    atomic_store_explicit(&registry.bytes_max, bytes_max, memory_order_relaxed);
    atomic_store_explicit(&registry.bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&registry.dropped, 0, memory_order_relaxed);
    atomic_store_explicit(&registry.armed, true, memory_order_relaxed);
    (void)pthread_mutex_unlock(&registry.lock);
}

void
rps_profile_await(void)
{
    (void)pthread_mutex_lock(&registry.lock);
    while (!registry.ended) {
        (void)pthread_cond_wait(&registry.moved, &registry.lock);
    }
    (void)pthread_mutex_unlock(&registry.lock);
}

void
rps_profile_disarm(void)
{
    (void)pthread_mutex_lock(&registry.lock);
    if (registry.first != 0 && !registry.ended) {
        end_locked();
    }
    (void)pthread_mutex_unlock(&registry.lock);
}

/* --- taking -------------------------------------------------------------- */

static void
take_chunks(struct rps_profile_collected *collected, struct buffer *buffer)
{
    struct rps_profile_chunk *chunk = buffer->chunks;

    buffer->chunks = NULL;
    while (chunk != NULL) {
        struct rps_profile_chunk *next = chunk->next;

        chunk->next = collected->chunks;
        collected->chunks = chunk;
        collected->count += chunk->count;
        chunk = next;
    }
}

/* Its strings go with the records that point to them. */
static bool
take_buffer(struct rps_profile_collected *collected, struct buffer *buffer)
{
    struct rps_profile_kept *kept = calloc(1, sizeof(*kept));

    (void)pthread_mutex_lock(&buffer->lock);
    take_chunks(collected, buffer);
    collected->dropped += buffer->dropped;
    buffer->dropped = 0;
    memset(buffer->cache, 0, sizeof(buffer->cache));
    if (kept != NULL) {
        kept->strings = buffer->strings;
        kept->next = collected->kept;
        collected->kept = kept;
        buffer->strings = (struct rps_strings){.blocks = NULL};
    } else {
        rps_strings_finish(&buffer->strings);
    }
    buffer->strings_told = 0;
    (void)pthread_mutex_unlock(&buffer->lock);
    return kept != NULL;
}

/* Those that lie around another begin before it, or end after it. */
static int
by_start(const void *a, const void *b)
{
    const struct rps_profile_span *x =
            &(*(struct rps_profile_record *const *)a)->span;
    const struct rps_profile_span *y =
            &(*(struct rps_profile_record *const *)b)->span;

    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static bool
sort_records(struct rps_profile_collected *collected)
{
    size_t n = 0;

    collected->records =
            calloc(collected->count + 1, sizeof(*collected->records));
    if (collected->records == NULL) {
        return false;
    }
    for (struct rps_profile_chunk *chunk = collected->chunks; chunk != NULL;
            chunk = chunk->next) {
        for (size_t i = 0; i < chunk->count; i++) {
            collected->records[n++] = &chunk->records[i];
        }
    }
    qsort(collected->records, n, sizeof(*collected->records), by_start);
    return true;
}

bool
rps_profile_take(struct rps_profile_collected *collected)
{
    bool good = true;

    *collected = (struct rps_profile_collected){.count = 0};
    (void)pthread_mutex_lock(&registry.lock);
    assert(registry.ended);
    for (struct buffer *buffer = registry.buffers; buffer != NULL;
            buffer = buffer->next) {
        good = take_buffer(collected, buffer) && good;
    }
    collected->steps = registry.steps;
    collected->step_count = registry.step_count;
    collected->dropped +=
            atomic_load_explicit(&registry.dropped, memory_order_relaxed);
    registry.steps = NULL;
    registry.step_count = 0;
    registry.step_capacity = 0;
    registry.first = 0;
    (void)pthread_mutex_unlock(&registry.lock);
    good = good && sort_records(collected);
    if (!good) {
        rps_profile_collected_finish(collected);
    }
    return good;
}

void
rps_profile_collected_finish(struct rps_profile_collected *collected)
{
    struct rps_profile_chunk *chunk = collected->chunks;
    struct rps_profile_kept *kept = collected->kept;

    while (chunk != NULL) {
        struct rps_profile_chunk *next = chunk->next;

        free(chunk);
        chunk = next;
    }
    while (kept != NULL) {
        struct rps_profile_kept *next = kept->next;

        rps_strings_finish(&kept->strings);
        free(kept);
        kept = next;
    }
    free(collected->records);
    free(collected->steps);
    *collected = (struct rps_profile_collected){.count = 0};
}

void
rps_profile_abandon(void)
{
    struct rps_profile_collected collected;

    rps_profile_disarm();
    if (rps_profile_take(&collected)) {
        rps_profile_collected_finish(&collected);
    }
}
