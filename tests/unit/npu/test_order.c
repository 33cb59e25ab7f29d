/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs over several streams: words of device memory, kernels that
 * read one and change another, and events wherever two kernels of different
 * streams touch the same word, and nowhere else. Whatever the streams do at the
 * same time, the words are what one thread would have made of them.
 */
#include "base/hash.h"
#include "tests/unit/npu/kernel.h"

#define STREAMS 4u
#define WORDS   6u
#define LENGTH  60u
#define ROUNDS  12u

struct mix {
    uint32_t *to; /* inside, as is from */
    const uint32_t *from;
    uint32_t add;
};

struct program {
    uint32_t stream[LENGTH];
    uint32_t to[LENGTH];
    uint32_t from[LENGTH];
};

static rps_npu *npu;
static rps_npu_stream *streams[STREAMS];
static uint32_t *words; /* device memory */

/* Of each word: the last kernel that changed it, those since that read it. */
static rps_npu_event *changed[WORDS];
static rps_npu_event *seen[WORDS][STREAMS];

static void
set_up(void)
{
    static const char *const names[STREAMS] = {"a", "b", "c", "d"};

    npu = open_npu();
    words = take_memory(npu, WORDS * sizeof(*words));
    for (uint32_t s = 0; s < STREAMS; s++) {
        streams[s] = open_stream(npu, names[s]);
    }
}

static void
tear_down(void)
{
    for (uint32_t s = 0; s < STREAMS; s++) {
        rps_npu_stream_destroy(streams[s]);
    }
    ck_assert_ok(rps_npu_free(npu, words));
    rps_npu_close(npu);
}

static struct program
draw_program(uint64_t seed)
{
    struct program program;

    for (uint32_t i = 0; i < LENGTH; i++) {
        seed = rps_mix64(seed + i);
        program.stream[i] = (uint32_t)(seed % STREAMS);
        program.to[i] = (uint32_t)(seed >> 16) % WORDS;
        program.from[i] = (uint32_t)(seed >> 32) % WORDS;
    }
    return program;
}

static void
run_model(const struct program *program, uint32_t *values)
{
    for (uint32_t i = 0; i < LENGTH; i++) {
        values[program->to[i]] =
                values[program->to[i]] * 3 + values[program->from[i]] + i;
    }
}

static void
run_mix(const void *args, void *workspace)
{
    const struct mix *mix = args;

    *mix->to = *mix->to * 3 + *mix->from + mix->add;
}

static rps_npu_event *
make_event(void)
{
    rps_npu_event *event = NULL;

    ck_assert_ok(rps_npu_event_create(npu, &event));
    return event;
}

/* Events of this program alone: none was recorded before a capture. */
static void
make_events(void)
{
    for (uint32_t w = 0; w < WORDS; w++) {
        changed[w] = make_event();
        for (uint32_t s = 0; s < STREAMS; s++) {
            seen[w][s] = make_event();
        }
    }
}

static void
destroy_events(void)
{
    for (uint32_t w = 0; w < WORDS; w++) {
        rps_npu_event_destroy(changed[w]);
        for (uint32_t s = 0; s < STREAMS; s++) {
            rps_npu_event_destroy(seen[w][s]);
        }
    }
}

static void
give_mix(const struct program *program, uint32_t i)
{
    rps_npu_stream *stream = streams[program->stream[i]];
    const uint32_t to = program->to[i];
    const uint32_t from = program->from[i];
    const struct mix mix = {.to = rps_npu_inside(npu, words + to),
            .from = rps_npu_inside(npu, words + from),
            .add = i};
    const struct rps_npu_operation operation = {
            .type = "mix",
            .kernel = run_mix,
            .args = &mix,
            .args_bytes = sizeof(mix),
    };

    ck_assert_ok(rps_npu_stream_wait(stream, changed[from]));
    ck_assert_ok(rps_npu_stream_wait(stream, changed[to]));
    for (uint32_t s = 0; s < STREAMS; s++) {
        ck_assert_ok(rps_npu_stream_wait(stream, seen[to][s]));
    }
    ck_assert_ok(rps_npu_enqueue(stream, &operation));
    ck_assert_ok(rps_npu_event_record(changed[to], stream));
    ck_assert_ok(rps_npu_event_record(seen[from][program->stream[i]], stream));
}

static void
give_program(const struct program *program)
{
    make_events();
    for (uint32_t i = 0; i < LENGTH; i++) {
        give_mix(program, i);
    }
    destroy_events();
}

/* All streams begin behind the first one, and end before it. */
static rps_npu_step *
capture_program(const struct program *program)
{
    rps_npu_event *begin = make_event();
    rps_npu_event *end = make_event();
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_begin(streams[0]));
    ck_assert_ok(rps_npu_event_record(begin, streams[0]));
    for (uint32_t s = 1; s < STREAMS; s++) {
        ck_assert_ok(rps_npu_stream_wait(streams[s], begin));
    }
    give_program(program);
    for (uint32_t s = 1; s < STREAMS; s++) {
        ck_assert_ok(rps_npu_event_record(end, streams[s]));
        ck_assert_ok(rps_npu_stream_wait(streams[0], end));
    }
    ck_assert_ok(rps_npu_capture_end(streams[0], &step));
    rps_npu_event_destroy(begin);
    rps_npu_event_destroy(end);
    return step;
}

static void
assert_words_are(const uint32_t *values)
{
    uint32_t now[WORDS];

    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_ok(
            rps_npu_copy(streams[0], now, words, sizeof(now), RPS_NPU_TO_HOST));
    ck_assert_mem_eq(now, values, sizeof(now));
}

/* Between programs all is waited for: the events begin anew. */
START_TEST(streams_make_of_words_what_one_thread_would)
{
    uint32_t values[WORDS] = {0};

    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        const struct program program = draw_program(seed);

        give_program(&program);
        run_model(&program, values);
        assert_words_are(values);
    }
}
END_TEST

START_TEST(so_do_compiled_steps_launched_behind_each_other)
{
    uint32_t values[WORDS] = {0};

    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        const struct program program = draw_program(seed + 1000);
        rps_npu_step *step = capture_program(&program);

        ck_assert_ok(rps_npu_launch(streams[0], step, 7));
        ck_assert_ok(rps_npu_launch(streams[0], step, 1));
        for (int i = 0; i < 8; i++) {
            run_model(&program, values);
        }
        if (seed % 2 == 0) {
            assert_words_are(values);
        }
        rps_npu_step_destroy(step);
    }
    assert_words_are(values);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("order");
    TCase *tcase = tcase_create("order");

    use_own_host();
    tcase_set_timeout(tcase, 60); /* under a sanitizer, on a busy machine */
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, streams_make_of_words_what_one_thread_would);
    tcase_add_test(tcase, so_do_compiled_steps_launched_behind_each_other);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
