/* SPDX-License-Identifier: Apache-2.0 */
/* The pool on a device: what its tests without one cannot see. */
#include "base/hash.h"
#include "base/text.h"
#include "tests/unit/npu/npu.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB      UINT64_C(1048576)
#define STREAMS  4
#define LIVE_MAX 24
#define CALLS    2000 /* of each thread */

static rps_npu *npu;
static rps_npu_stream *compute;
static rps_npu_stream *comm;
static _Atomic bool gate_is_open;

static void
set_up(void)
{
    rps_npu_options options;

    rps_npu_options_init(&options);
    options.memory_bytes = 256 * MIB;
    ck_assert_ok(rps_npu_open(&npu, 0, &options));
    compute = open_stream(npu, "compute");
    comm = open_stream(npu, "comm");
    gate_is_open = false;
}

static void
tear_down(void)
{
    rps_npu_stream_destroy(compute);
    rps_npu_stream_destroy(comm);
    rps_npu_close(npu);
}

static void *
alloc(rps_npu_stream *stream, uint64_t bytes)
{
    void *address = NULL;

    ck_assert_ok(rps_npu_pool_alloc(stream, bytes, &address));
    return address;
}

static rps_npu_pool_stats
read_stats(void)
{
    rps_npu_pool_stats stats;

    rps_npu_pool_read_stats(npu, &stats);
    return stats;
}

static rps_status
wait_for_gate(void *context)
{
    while (!gate_is_open) {
        usleep(100);
    }
    return RPS_OK;
}

START_TEST(of_100_mib_given_back_20_allocated_leave_100_reserved)
{
    ck_assert_ok(rps_npu_pool_free(npu, alloc(compute, 100 * MIB)));
    alloc(compute, 20 * MIB);
    ck_assert_uint_eq(read_stats().allocated.now, 20 * MIB);
    ck_assert_uint_eq(read_stats().reserved.now, 100 * MIB);
}
END_TEST

START_TEST(allocated_falls_at_once_and_active_when_the_other_stream_is_done)
{
    void *sum = alloc(compute, 4 * MIB);

    ck_assert_ok(rps_npu_pool_record_stream(sum, comm));
    ck_assert_ok(rps_npu_call_async(comm, "reduce", wait_for_gate, NULL));
    ck_assert_ok(rps_npu_pool_free(npu, sum));
    ck_assert_uint_eq(read_stats().allocated.now, 0);
    ck_assert_uint_eq(read_stats().active.now, 4 * MIB);
    ck_assert_ptr_ne(alloc(compute, 4 * MIB), sum);
    gate_is_open = true;
    ck_assert_ok(rps_npu_stream_synchronize(comm));
    ck_assert_ptr_eq(alloc(compute, 4 * MIB), sum);
}
END_TEST

START_TEST(a_block_is_given_again_while_its_former_kernels_wait)
{
    void *first = alloc(compute, 4096);
    void *second;
    uint8_t bytes[4096];

    ck_assert_ok(rps_npu_call_async(compute, "wait", wait_for_gate, NULL));
    ck_assert_ok(rps_npu_fill_async(compute, first, 1, 4096));
    ck_assert_ok(rps_npu_pool_free(npu, first));
    second = alloc(compute, 4096);
    ck_assert_ptr_eq(second, first);
    ck_assert_ok(rps_npu_fill_async(compute, second, 2, 4096));
    gate_is_open = true;
    ck_assert_ok(rps_npu_copy(compute, bytes, second, 4096, RPS_NPU_TO_HOST));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        ck_assert_uint_eq(bytes[i], 2);
    }
}
END_TEST

START_TEST(memory_goes_to_the_driver_and_comes_again_before_a_request_fails)
{
    void *direct = NULL;

    ck_assert_ok(rps_npu_pool_free(npu, alloc(compute, 200 * MIB)));
    ck_assert_int_eq(rps_npu_malloc(npu, 100 * MIB, &direct), RPS_E_NOMEM);
    alloc(compute, 240 * MIB);
    ck_assert_uint_eq(read_stats().reserved.now, 240 * MIB);
}
END_TEST

START_TEST(a_request_waits_for_other_streams_before_it_fails)
{
    void *address = alloc(compute, 200 * MIB);

    ck_assert_ok(rps_npu_pool_record_stream(address, comm));
    for (int i = 0; i < 8; i++) {
        ck_assert_ok(rps_npu_fill_async(comm, address, 1, 200 * MIB));
    }
    ck_assert_ok(rps_npu_pool_free(npu, address));
    alloc(compute, 210 * MIB);
    ck_assert_uint_eq(read_stats().out_of_memory, 0);
}
END_TEST

START_TEST(out_of_memory_names_the_device_the_pool_and_what_to_do)
{
    void *address = alloc(compute, 200 * MIB);

    ck_assert_int_eq(
            rps_npu_pool_alloc(comm, 100 * MIB, &address), RPS_E_NOMEM);
    ck_assert_ptr_null(address);
    assert_words("npu0: memory of the pool: no device memory for 100.0 MiB "
                 "(104857600 bytes): the pool has allocated 200.0 MiB");
    assert_words("reserved 200.0 MiB (1 segments)");
    assert_words("ask for less, release tensors, or open the device");
}
END_TEST

START_TEST(addresses_that_are_no_blocks_are_refused)
{
    int host = 0;
    void *direct = take_memory(npu, 4096);
    void *address = alloc(compute, 4096);

    ck_assert_int_eq(rps_npu_pool_free(npu, &host), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_pool_free(npu, direct), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_pool_record_stream(direct, comm), RPS_E_INVAL);
    ck_assert_ok(rps_npu_pool_free(npu, address));
    ck_assert_int_eq(rps_npu_pool_free(npu, address), RPS_E_INVAL);
    assert_words("npu0: give memory back to the pool:");
    ck_assert_ok(rps_npu_pool_free(npu, NULL));
    ck_assert_ok(rps_npu_free(npu, direct));
}
END_TEST

START_TEST(memory_of_the_pool_is_not_freed_as_if_it_were_the_callers)
{
    char *address = alloc(compute, 4 * MIB);
    char *second = alloc(compute, 4 * MIB);

    ck_assert_int_eq(rps_npu_free(npu, address), RPS_E_INVAL); /* a segment */
    assert_words("is not of rps_npu_malloc()");
    assert_words("rps_npu_pool_free()");
    ck_assert_int_eq(rps_npu_free(npu, second), RPS_E_INVAL);
    ck_assert_ok(rps_npu_fill_async(compute, address, 1, 4 * MIB));
    ck_assert_ok(rps_npu_stream_synchronize(compute));
    ck_assert_ok(rps_npu_pool_free(npu, address));
    ck_assert_int_eq(rps_npu_free(npu, address), RPS_E_INVAL);
    ck_assert_ok(rps_npu_pool_free(npu, second));
    ck_assert_uint_eq(rps_npu_pool_trim(npu), 20 * MIB);
}
END_TEST

START_TEST(reports_and_snapshots_are_of_the_device)
{
    char *table, *json, *snapshot;

    alloc(compute, 1000);
    table = rps_npu_pool_report(npu, RPS_NPU_TABLE);
    json = rps_npu_pool_report(npu, RPS_NPU_JSON);
    snapshot = rps_npu_pool_snapshot(npu);
    ck_assert_ptr_nonnull(strstr(table, "npu 0"));
    ck_assert_ptr_nonnull(strstr(json, "\"device\":0"));
    ck_assert_ptr_nonnull(strstr(snapshot, "\"capacity\":268435456"));
    ck_assert_ptr_nonnull(strstr(snapshot, "\"stream\":\"compute\""));
    free(table);
    free(json);
    free(snapshot);
}
END_TEST

/* --- a storm -----------------------------------------------------------------
 */

struct caller {
    rps_npu_stream *stream;
    rps_npu_stream *other; /* reads blocks that the stream wrote */
    uint64_t draw;
    char *live[LIVE_MAX];
    uint64_t bytes[LIVE_MAX];
    uint8_t value[LIVE_MAX];
    uint8_t read[LIVE_MAX][2]; /* the first and the last byte of block i */
};

static uint64_t
draw(struct caller *caller, uint64_t bound)
{
    caller->draw = rps_mix64(caller->draw);
    return (caller->draw >> 11) % bound;
}

/* Every byte is the block's own value until it is freed. */
static void
check_block(struct caller *caller, size_t i)
{
    static _Thread_local uint8_t bytes[1 << 20];

    ck_assert_ok(rps_npu_copy(caller->stream, bytes, caller->live[i],
            caller->bytes[i], RPS_NPU_TO_HOST));
    for (uint64_t at = 0; at < caller->bytes[i]; at++) {
        if (bytes[at] != caller->value[i]) {
            ck_abort_msg("byte %lu of %lu is %u, not %u", (unsigned long)at,
                    (unsigned long)caller->bytes[i], bytes[at],
                    caller->value[i]);
        }
    }
}

static void
make_block(struct caller *caller, size_t i)
{
    caller->bytes[i] = 1 + draw(caller, UINT64_C(1) << (4 + draw(caller, 17)));
    caller->value[i] = (uint8_t)draw(caller, 256);
    caller->live[i] = alloc(caller->stream, caller->bytes[i]);
    ck_assert_ok(rps_npu_fill_async(caller->stream, caller->live[i],
            caller->value[i], caller->bytes[i]));
}

/* Freed while another stream has yet to overwrite it: who gets the block next
 * would find those bytes. */
static void
let_go(struct caller *caller, size_t i)
{
    if (draw(caller, 2) == 0) {
        rps_npu_event *written = NULL;

        ck_assert_ok(rps_npu_event_create(npu, &written));
        ck_assert_ok(rps_npu_event_record(written, caller->stream));
        ck_assert_ok(rps_npu_stream_wait(caller->other, written));
        ck_assert_ok(
                rps_npu_pool_record_stream(caller->live[i], caller->other));
        ck_assert_ok(rps_npu_fill_async(caller->other, caller->live[i],
                (uint8_t)~caller->value[i], caller->bytes[i]));
        rps_npu_event_destroy(written);
    }
    ck_assert_ok(rps_npu_pool_free(npu, caller->live[i]));
    caller->live[i] = NULL;
}

static void *
run_caller(void *context)
{
    struct caller *caller = context;

    for (int call = 0; call < CALLS; call++) {
        const size_t i = (size_t)draw(caller, LIVE_MAX);

        if (caller->live[i] == NULL) {
            make_block(caller, i);
            continue;
        }
        if (draw(caller, 4) == 0) {
            check_block(caller, i);
        }
        let_go(caller, i);
    }
    for (size_t i = 0; i < LIVE_MAX; i++) {
        if (caller->live[i] != NULL) {
            check_block(caller, i);
            let_go(caller, i);
        }
    }
    return NULL;
}

START_TEST(blocks_keep_their_bytes_in_a_storm_of_four_streams)
{
    static struct caller callers[STREAMS];
    rps_npu_stream *others[STREAMS]; /* a stream has one user */
    pthread_t threads[STREAMS];

    for (size_t c = 0; c < STREAMS; c++) {
        callers[c].stream = open_stream(npu, "own");
        callers[c].other = others[c] = open_stream(npu, "other");
        callers[c].draw = c;
        ck_assert_int_eq(
                pthread_create(&threads[c], NULL, run_caller, &callers[c]), 0);
    }
    for (size_t c = 0; c < STREAMS; c++) {
        pthread_join(threads[c], NULL);
    }
    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_uint_eq(read_stats().active.now, 0);
    rps_npu_pool_trim(npu);
    ck_assert_uint_eq(read_stats().reserved.now, 0);
    for (size_t c = 0; c < STREAMS; c++) {
        rps_npu_stream_destroy(callers[c].stream);
        rps_npu_stream_destroy(others[c]);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_pool_device");
    TCase *tcase = tcase_create("pool");

    use_own_host();
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(
            tcase, of_100_mib_given_back_20_allocated_leave_100_reserved);
    tcase_add_test(tcase,
            allocated_falls_at_once_and_active_when_the_other_stream_is_done);
    tcase_add_test(tcase, a_block_is_given_again_while_its_former_kernels_wait);
    tcase_add_test(tcase,
            memory_goes_to_the_driver_and_comes_again_before_a_request_fails);
    tcase_add_test(tcase, a_request_waits_for_other_streams_before_it_fails);
    tcase_add_test(
            tcase, out_of_memory_names_the_device_the_pool_and_what_to_do);
    tcase_add_test(tcase, addresses_that_are_no_blocks_are_refused);
    tcase_add_test(
            tcase, memory_of_the_pool_is_not_freed_as_if_it_were_the_callers);
    tcase_add_test(tcase, reports_and_snapshots_are_of_the_device);
    tcase_add_test(tcase, blocks_keep_their_bytes_in_a_storm_of_four_streams);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
