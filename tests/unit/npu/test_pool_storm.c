/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests and frees of four streams, a thread each, on one pool, now
 * and then in a capture. The model knows nothing of the pool: a map of the
 * device's memory says for every 512 bytes that they are in use or, where they
 * were freed, what must have happened before they may be used again; and what
 * the driver gave is its own count.
 *
 * RECPS_TEST_LONG: a million calls. RECPS_TEST_SEED: other ones.
 */
#include "base/hash.h"
#include "base/text.h"
#include "tests/unit/npu/fake_device.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>

#define STREAMS     4
#define LIVE_MAX    160 /* blocks that a thread holds at once */
#define SHARED_MAX  64  /* blocks that any thread frees */
#define ROUNDS      20  /* after each, all sums are compared */
#define CAPACITY    (192 * MIB)
#define UNITS       (CAPACITY / RPS_POOL_ALIGN)
#define CALLS_SHORT 60000
#define CALLS_LONG  1000000
#define STEPS_MAX   16384
#define IN_USE      UINT64_MAX

/* Check's own asserts write to a pipe each time: too slow for each 512 bytes.
 */
#define MUST(condition, ...)           \
    do {                               \
        if (!(condition)) {            \
            ck_abort_msg(__VA_ARGS__); \
        }                              \
    } while (0)

/* Why freed memory is not yet anyone's. */
struct release {
    size_t stream;           /* it may have it at once */
    uint64_t after[STREAMS]; /* tasks that each stream must have done */
    size_t step;             /* and which step must be gone; 0: none */
};

/* A compiled step of the model; number 0 is no step. */
struct step {
    struct rps_pool_private *memory;
    _Atomic bool open;
    _Atomic bool gone;
};

struct held {
    char *address;
    uint64_t bytes;
    size_t stream;
    size_t step;
    bool used_by[STREAMS];
};

struct caller {
    size_t index;
    uint64_t draw;
    struct held held[LIVE_MAX];
    size_t count;
    size_t open;   /* the step that captures; 0: none */
    size_t closed; /* a step that is compiled; 0: none */
    uint64_t allocs;
    uint64_t refused;
    struct release *releases;
    size_t release_count;
};

static struct fake_device device;
static struct rps_npu_pool *pool;
static uint64_t map[UNITS]; /* 0, IN_USE or a release: see note_release() */
static struct caller callers[STREAMS];
static uint64_t calls; /* of a thread in a round */
static rps_npu_stream streams[STREAMS] = {{.name = "compute"},
        {.name = "copies"}, {.name = "comm"}, {.name = "input"}};
static struct step steps[STEPS_MAX];
static _Atomic size_t step_count = 1;

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held shared[SHARED_MAX]; /* shared_lock */
static size_t shared_count;            /* shared_lock */

static uint64_t
draw(struct caller *caller, uint64_t bound)
{
    caller->draw = rps_mix64(caller->draw);
    return (caller->draw >> 11) % bound;
}

/* Mostly small ones; a few that are large, and some larger than a segment. */
static uint64_t
draw_bytes(struct caller *caller)
{
    const uint64_t kind = draw(caller, 1000);

    if (kind < 950) {
        return 1 + draw(caller, UINT64_C(1) << (4 + draw(caller, 12)));
    }
    if (kind < 985) {
        return 1 + draw(caller, 2 * MIB);
    }
    return 1 + draw(caller, kind < 998 ? 10 * MIB : 24 * MIB);
}

/* --- the model --------------------------------------------------------------
 */

static uint64_t *
units_of(const struct held *held, size_t *count_out)
{
    const uint64_t offset = (uint64_t)(uintptr_t)held->address - FAKE_BASE;

    MUST(offset % RPS_POOL_ALIGN == 0 && offset + held->bytes <= CAPACITY,
            "no block of the device: %p", (void *)held->address);
    *count_out = (size_t)((held->bytes + RPS_POOL_ALIGN - 1) / RPS_POOL_ALIGN);
    return &map[offset / RPS_POOL_ALIGN];
}

static void
check_release(const struct held *held, const struct release *release)
{
    for (size_t s = 0; s < STREAMS; s++) {
        MUST((s == release->stream && s == held->stream) ||
                        streams[s].done >= release->after[s],
                "stream %zu has it before stream %zu is done with it",
                held->stream, s);
    }
    MUST(release->step == held->step || release->step == 0 ||
                    steps[release->step].gone,
            "step %zu has what is step %zu's", held->step, release->step);
}

/* Nobody has it, and what it waited for has happened. */
static void
claim(const struct held *held)
{
    size_t count;
    uint64_t *units = units_of(held, &count);
    uint64_t last = 0;

    for (size_t i = 0; i < count; i++) {
        MUST(units[i] != IN_USE, "two live blocks overlap");
        if (units[i] != 0 && units[i] != last) {
            last = units[i];
            check_release(held, &callers[(last - 1) % STREAMS]
                                         .releases[(last - 1) / STREAMS]);
        }
        units[i] = IN_USE;
    }
}

static void
disclaim(struct caller *caller, const struct held *held)
{
    struct release *release = &caller->releases[caller->release_count];
    const bool captured = held->step != 0 && steps[held->step].open;
    size_t count;
    uint64_t *units = units_of(held, &count);

    release->stream = held->stream;
    release->step = held->step;
    for (size_t s = 0; s < STREAMS; s++) {
        /* in its capture, its own stream has not been given its work yet */
        const bool uses = s == held->stream ? !captured : held->used_by[s];

        release->after[s] = uses ? streams[s].given : 0;
    }
    for (size_t i = 0; i < count; i++) {
        MUST(units[i] == IN_USE, "the model lost a block");
        units[i] = 1 + caller->index + STREAMS * caller->release_count;
    }
    caller->release_count++;
}

/* --- what a thread does ------------------------------------------------------
 */

static void
let_go(struct caller *caller, const struct held *held)
{
    struct rps_error error = {.text = ""};

    disclaim(caller, held);
    MUST(rps_pool_free(pool, held->address, &error) == RPS_OK, "%s",
            error.text);
}

static void
free_one(struct caller *caller)
{
    const size_t i = (size_t)draw(caller, caller->count);

    let_go(caller, &caller->held[i]);
    caller->count--;
    caller->held[i] = caller->held[caller->count];
}

static void
request(struct caller *caller)
{
    struct held held = {.bytes = draw_bytes(caller),
            .stream = caller->index,
            .step = caller->open};
    struct rps_error error = {.text = ""};
    void *address;
    rps_status status;

    if (caller->count == LIVE_MAX) {
        free_one(caller);
    }
    caller->allocs++;
    status = rps_pool_alloc(pool, &streams[caller->index],
            steps[caller->open].memory, held.bytes, &address, &error);
    if (status != RPS_OK) {
        MUST(status == RPS_E_NOMEM, "%s", error.text);
        caller->refused++;
        while (caller->count > LIVE_MAX / 2) {
            free_one(caller);
        }
        return;
    }
    held.address = address;
    claim(&held);
    caller->held[caller->count] = held;
    caller->count++;
}

static void
record(struct caller *caller)
{
    struct held *held = &caller->held[draw(caller, caller->count)];
    const size_t s = (size_t)draw(caller, STREAMS);
    struct rps_error error = {.text = ""};

    MUST(rps_pool_record_stream(pool, held->address, &streams[s],
                 RPS_POOL_NO_PLACE, &error) == RPS_OK,
            "%s", error.text);
    held->used_by[s] = true;
}

/* What one thread asked for, another one gives back. */
static void
exchange(struct caller *caller)
{
    struct held other = {.address = NULL};
    const size_t i = (size_t)draw(caller, caller->count);

    pthread_mutex_lock(&shared_lock);
    if (shared_count == SHARED_MAX) {
        shared_count--;
        other = shared[shared_count];
    }
    shared[shared_count] = caller->held[i];
    shared_count++;
    pthread_mutex_unlock(&shared_lock);
    caller->count--;
    caller->held[i] = caller->held[caller->count];
    if (other.address != NULL) {
        let_go(caller, &other);
    }
}

static void
drop_step(size_t number)
{
    steps[number].gone = true;
    rps_pool_private_destroy(pool, steps[number].memory);
}

static void
begin_or_end_capture(struct caller *caller)
{
    rps_npu_stream *stream = &streams[caller->index];

    if (caller->open != 0) {
        stream->captures = false;
        rps_pool_private_close(pool, steps[caller->open].memory);
        steps[caller->open].open = false;
        if (caller->closed != 0) {
            drop_step(caller->closed);
        }
        caller->closed = caller->open;
        caller->open = 0;
    } else if (step_count < STEPS_MAX - STREAMS) {
        caller->open = step_count++;
        steps[caller->open].memory = rps_pool_private_create(pool);
        steps[caller->open].open = true;
        stream->captures = true;
    }
}

/* The device goes on, somewhere. */
static void
progress(struct caller *caller)
{
    rps_npu_stream *stream = &streams[draw(caller, STREAMS)];
    const uint64_t given = stream->given;
    const uint64_t late = draw(caller, 6);

    if (given > late) {
        fake_stream_reach(stream, given - late);
    }
}

static void
call(struct caller *caller)
{
    const uint64_t kind = draw(caller, 1000);

    if (caller->open == 0 && kind % 2 == 0) {
        fake_stream_give(&streams[caller->index]);
    }
    if (caller->count == 0 || kind < 460) {
        request(caller);
    } else if (kind < 860) {
        free_one(caller);
    } else if (kind < 920) {
        record(caller);
    } else if (kind < 960) {
        exchange(caller);
    } else if (kind < 985) {
        progress(caller);
    } else if (kind < 999) {
        begin_or_end_capture(caller);
    } else {
        rps_pool_trim(pool);
    }
}

static void *
run_caller(void *context)
{
    for (uint64_t i = 0; i < calls; i++) {
        call(context);
    }
    return NULL;
}

/* --- sums
 * --------------------------------------------------------------------- */

struct sums {
    struct held held[STREAMS * LIVE_MAX + SHARED_MAX]; /* by address */
    size_t held_count;
    size_t seen;  /* of them */
    uint64_t end; /* of the block before, and its segment */
    uint64_t segment_end;
    bool was_free;
    uint64_t requested, live, waiting, held_by_steps, free_bytes, largest;
    uint64_t segments, reserved;
};

static int
by_address(const void *a, const void *b)
{
    const struct held *left = a;
    const struct held *right = b;

    return (left->address > right->address) - (left->address < right->address);
}

static void
list_held(struct sums *sums)
{
    for (size_t c = 0; c < STREAMS; c++) {
        memcpy(&sums->held[sums->held_count], callers[c].held,
                callers[c].count * sizeof(struct held));
        sums->held_count += callers[c].count;
    }
    memcpy(&sums->held[sums->held_count], shared,
            shared_count * sizeof(struct held));
    sums->held_count += shared_count;
    qsort(sums->held, sums->held_count, sizeof(struct held), by_address);
}

static void
see_live(struct sums *sums, const struct rps_pool_seen *seen)
{
    const struct held *held = &sums->held[sums->seen];

    ck_assert_uint_lt(sums->seen, sums->held_count);
    ck_assert_uint_eq((uint64_t)(uintptr_t)held->address, seen->address);
    ck_assert_uint_eq(held->bytes, seen->requested);
    ck_assert_uint_ge(seen->bytes, seen->requested);
    ck_assert_str_eq(seen->stream, streams[held->stream].name);
    sums->requested += held->bytes;
    sums->live += seen->bytes;
    sums->seen++;
}

static void
see_free(struct sums *sums, const struct rps_pool_seen *seen)
{
    ck_assert_msg(!sums->was_free, "free neighbours were not merged");
    if (seen->step != 0) {
        sums->held_by_steps += seen->bytes;
        return;
    }
    sums->free_bytes += seen->bytes;
    if (seen->bytes > sums->largest) {
        sums->largest = seen->bytes;
    }
}

/* Blocks lie side by side and fill their segment. */
static void
see(void *context, const struct rps_pool_seen *seen)
{
    struct sums *sums = context;

    if (seen->address == seen->segment) {
        ck_assert_uint_eq(sums->end, sums->segment_end);
        sums->segments++;
        sums->reserved += seen->segment_bytes;
        sums->segment_end = seen->segment + seen->segment_bytes;
        sums->was_free = false;
    } else {
        ck_assert_uint_eq(seen->address, sums->end);
    }
    sums->end = seen->address + seen->bytes;
    if (seen->state == RPS_POOL_LIVE) {
        see_live(sums, seen);
    } else if (seen->state == RPS_POOL_WAITING) {
        sums->waiting += seen->bytes;
    } else {
        see_free(sums, seen);
    }
    sums->was_free = seen->state == RPS_POOL_FREE;
}

static void
check_calls(const rps_npu_pool_stats *stats)
{
    uint64_t allocs = 0;
    uint64_t refused = 0;

    for (size_t c = 0; c < STREAMS; c++) {
        allocs += callers[c].allocs;
        refused += callers[c].refused;
    }
    ck_assert_uint_eq(stats->requests, allocs);
    ck_assert_uint_eq(stats->out_of_memory, refused);
    ck_assert_uint_eq(stats->blocks.total, allocs - refused);
    ck_assert_uint_eq(stats->segments.total, device.takes);
    ck_assert_uint_eq(stats->trimmed, device.takes - device.count);
    /* a new segment each, or none */
    ck_assert_uint_eq(stats->reused + device.takes + refused, allocs);
}

static void
check_sums(void)
{
    static struct sums sums;
    const rps_npu_pool_stats stats = fake_stats(pool);

    memset(&sums, 0, sizeof(sums));
    list_held(&sums);
    ck_assert(rps_pool_walk(pool, see, &sums));
    ck_assert_uint_eq(sums.end, sums.segment_end);
    ck_assert_uint_eq(sums.seen, sums.held_count);
    ck_assert_uint_eq(stats.blocks.now, sums.held_count);
    ck_assert_uint_eq(stats.requested.now, sums.requested);
    ck_assert_uint_eq(stats.allocated.now, sums.live);
    ck_assert_uint_eq(stats.active.now, sums.live + sums.waiting);
    ck_assert_uint_eq(stats.held, sums.held_by_steps);
    ck_assert_uint_eq(stats.segments.now, sums.segments);
    ck_assert_uint_eq(stats.segments.now, device.count);
    ck_assert_uint_eq(stats.reserved.now, sums.reserved);
    ck_assert_uint_eq(stats.reserved.now, device.taken);
    ck_assert_uint_eq(stats.reserved.now,
            sums.live + sums.waiting + sums.held_by_steps + sums.free_bytes);
    ck_assert_uint_eq(stats.largest_free, sums.largest);
    check_calls(&stats);
}

/* --- the storm
 * ----------------------------------------------------------------- */

static void
run_round(void)
{
    pthread_t threads[STREAMS];

    for (size_t c = 0; c < STREAMS; c++) {
        ck_assert_int_eq(
                pthread_create(&threads[c], NULL, run_caller, &callers[c]), 0);
    }
    for (size_t c = 0; c < STREAMS; c++) {
        pthread_join(threads[c], NULL);
    }
}

static void
begin(uint64_t seed, uint64_t all_calls)
{
    fake_device_init(&device, CAPACITY);
    device.streams = streams;
    device.stream_count = STREAMS;
    pool = fake_pool_create(&device);
    calls = all_calls / STREAMS / ROUNDS;
    for (size_t c = 0; c < STREAMS; c++) {
        callers[c].index = c;
        callers[c].draw = seed * STREAMS + c;
        /* a call frees half of its blocks at most where it was refused */
        callers[c].releases =
                calloc(all_calls / STREAMS * 2 + LIVE_MAX + SHARED_MAX,
                        sizeof(struct release));
        ck_assert_ptr_nonnull(callers[c].releases);
    }
}

static void
free_everything(void)
{
    for (size_t c = 0; c < STREAMS; c++) {
        while (callers[c].count > 0) {
            free_one(&callers[c]);
        }
        if (callers[c].open != 0) {
            begin_or_end_capture(&callers[c]);
        }
    }
    while (shared_count > 0) {
        shared_count--;
        let_go(&callers[0], &shared[shared_count]);
    }
    for (size_t c = 0; c < STREAMS; c++) {
        fake_stream_finish(&streams[c]);
        if (callers[c].closed != 0) {
            drop_step(callers[c].closed);
        }
    }
}

static void
see_whole(void *context, const struct rps_pool_seen *seen)
{
    ck_assert_int_eq(seen->state, RPS_POOL_FREE);
    ck_assert_uint_eq(seen->bytes, seen->segment_bytes);
}

static void
end(void)
{
    rps_pool_destroy(pool);
    fake_device_finish(&device);
    for (size_t c = 0; c < STREAMS; c++) {
        free(callers[c].releases);
    }
}

START_TEST(in_a_storm_of_four_streams_no_blocks_overlap_and_all_sums_hold)
{
    const char *seed = getenv("RECPS_TEST_SEED");
    uint64_t number = 1;

    ck_assert(seed == NULL || rps_parse_u64(seed, &number));
    begin(number, getenv("RECPS_TEST_LONG") != NULL ? CALLS_LONG : CALLS_SHORT);
    for (size_t round = 0; round < ROUNDS; round++) {
        run_round();
        check_sums();
    }
    free_everything();
    check_sums();
    /* every segment is one free block again, and all of them go back */
    ck_assert(rps_pool_walk(pool, see_whole, NULL));
    ck_assert_uint_eq(fake_stats(pool).active.now, 0);
    ck_assert_uint_gt(fake_stats(pool).reserved.now, 0);
    rps_pool_trim(pool);
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 0);
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_pool_storm");
    TCase *tcase = tcase_create("storm");

    tcase_set_timeout(tcase, 290);
    tcase_add_test(tcase,
            in_a_storm_of_four_streams_no_blocks_overlap_and_all_sums_hold);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
