/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a device, its memory, and what is refused. */
#include "tests/unit/npu/npu.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

START_TEST(a_device_is_open_once_in_a_process)
{
    rps_npu *first = open_npu();
    rps_npu *second = first;

    ck_assert_int_eq(rps_npu_open(&second, 0, NULL), RPS_E_MISMATCH);
    ck_assert_ptr_null(second);
    assert_words("npu0 is open already, in this process");
    ck_assert_ok(rps_npu_open(&second, 1, NULL));
    ck_assert_uint_eq(rps_npu_id(second), 1);
    rps_npu_close(second);
    rps_npu_close(first);
    rps_npu_close(open_npu());
}
END_TEST

/* The child opens, says so, and waits to be killed. */
static pid_t
start_holder(void)
{
    int said[2];
    char byte = 0;
    pid_t child = 0;

    ck_assert_int_eq(pipe(said), 0);
    child = fork();
    if (child == 0) {
        (void)open_npu();
        if (write(said[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    ck_assert_int_eq(read(said[0], &byte, 1), 1);
    close(said[0]);
    close(said[1]);
    return child;
}

START_TEST(a_device_of_another_process_is_refused_until_that_is_killed)
{
    const pid_t holder = start_holder();
    rps_npu *npu = NULL;
    char words[64];

    ck_assert_int_eq(rps_npu_open(&npu, 0, NULL), RPS_E_MISMATCH);
    (void)snprintf(
            words, sizeof(words), "npu0 is taken by process %ld", (long)holder);
    assert_words(words);
    ck_assert_int_eq(kill(holder, SIGKILL), 0);
    ck_assert_int_eq(waitpid(holder, NULL, 0), holder);
    npu = open_npu();
    rps_npu_close(npu);
}
END_TEST

START_TEST(a_child_does_not_have_its_parents_device)
{
    rps_npu *npu = open_npu();
    int how = 0;
    const pid_t child = fork();

    if (child == 0) {
        _exit(rps_npu_open(&npu, 0, NULL) == RPS_E_MISMATCH ? 7 : 1);
    }
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert_int_eq(WEXITSTATUS(how), 7);
    rps_npu_close(npu);
}
END_TEST

START_TEST(options_out_of_range_are_refused_in_words)
{
    rps_npu_options options;
    rps_npu *npu = NULL;

    ck_assert_int_eq(rps_npu_open(&npu, 64, NULL), RPS_E_INVAL);
    assert_words("no npu64");
    rps_npu_options_init(&options);
    options.memory_bytes = 1;
    ck_assert_int_eq(rps_npu_open(&npu, 0, &options), RPS_E_INVAL);
    assert_words("memory_bytes is 1");
    rps_npu_options_init(&options);
    options.struct_bytes = 3;
    ck_assert_int_eq(rps_npu_open(&npu, 0, &options), RPS_E_INVAL);
    assert_words("struct_bytes is 3");
    rps_npu_options_init(&options);
    options.copy_latency_ns = UINT64_MAX;
    ck_assert_int_eq(rps_npu_open(&npu, 0, &options), RPS_E_INVAL);
    setenv("RPS_NPU_DEVICES", "many", 1);
    ck_assert_int_eq(rps_npu_open(&npu, 0, NULL), RPS_E_INVAL);
    assert_words("RPS_NPU_DEVICES");
    setenv("RPS_NPU_DEVICES", "1", 1);
    ck_assert_int_eq(rps_npu_open(&npu, 1, NULL), RPS_E_INVAL);
    unsetenv("RPS_NPU_DEVICES");
    setenv("RPS_NPU_HOST", "../x", 1);
    ck_assert_int_eq(rps_npu_open(&npu, 0, NULL), RPS_E_INVAL);
    assert_words("RPS_NPU_HOST");
    ck_assert_ptr_null(npu);
}
END_TEST

START_TEST(two_hosts_have_devices_of_their_own)
{
    const pid_t holder = start_holder();
    int how = 0;
    const pid_t child = fork();

    if (child == 0) {
        setenv("RPS_NPU_HOST", "another", 1);
        rps_npu_close(open_npu());
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert_int_eq(how, 0);
    kill(holder, SIGKILL);
    waitpid(holder, &how, 0);
    rps_npu_close(open_npu()); /* which removes what the holder left */
}
END_TEST

static sigjmp_buf back;

static void
leave(int signal)
{
    siglongjmp(back, 1);
}

/* Returns whether the host faults when it reads there. */
static bool
host_faults_at(const void *address)
{
    struct sigaction action = {.sa_handler = leave, .sa_flags = SA_NODEFER};
    struct sigaction before;
    volatile bool faulted = true;

    sigaction(SIGSEGV, &action, &before);
    if (sigsetjmp(back, 1) == 0) {
        (void)*(const volatile char *)address;
        faulted = false;
    }
    sigaction(SIGSEGV, &before, NULL);
    return faulted;
}

START_TEST(a_host_that_follows_a_device_pointer_faults)
{
    rps_npu *npu = open_npu();
    void *address = take_memory(npu, 4096);
    const char mine = 0;

    ck_assert(rps_npu_is_device_address(npu, address));
    ck_assert(!rps_npu_is_device_address(npu, &mine));
    ck_assert(!host_faults_at(&mine));
    ck_assert(host_faults_at(address));
    ck_assert_ok(rps_npu_free(npu, address));
    rps_npu_close(npu);
}
END_TEST

START_TEST(memory_is_aligned_counted_and_given_back)
{
    rps_npu *npu = open_npu();
    uint64_t before = 0;
    uint64_t now = 0;
    uint64_t capacity = 0;
    void *a = NULL;
    void *b = NULL;

    rps_npu_memory(npu, &before, &capacity);
    ck_assert_uint_eq(before, capacity);
    ck_assert_uint_eq(capacity, UINT64_C(64) << 20);
    a = take_memory(npu, 1000);
    b = take_memory(npu, UINT64_C(1) << 20);
    ck_assert_uint_eq((uintptr_t)a % 512, 0);
    ck_assert_uint_eq((uintptr_t)b % 512, 0);
    rps_npu_memory(npu, &now, &capacity);
    ck_assert_uint_ge(before - now, 1000 + (UINT64_C(1) << 20));
    ck_assert_ok(rps_npu_free(npu, a));
    ck_assert_int_eq(rps_npu_free(npu, a), RPS_E_INVAL);
    assert_words("free already");
    ck_assert_int_eq(rps_npu_free(npu, (char *)b + 512), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_free(npu, &a), RPS_E_INVAL);
    ck_assert_ok(rps_npu_free(npu, b));
    ck_assert_ok(rps_npu_free(npu, NULL));
    rps_npu_memory(npu, &now, &capacity);
    ck_assert_uint_eq(now, before);
    rps_npu_close(npu);
}
END_TEST

START_TEST(memory_is_zeroed_also_when_it_was_used_before)
{
    rps_npu *npu = open_npu();
    rps_npu_stream *stream = open_stream(npu, "s");
    unsigned char bytes[5000];

    for (int round = 0; round < 2; round++) {
        void *address = take_memory(npu, sizeof(bytes));

        memset(bytes, 1, sizeof(bytes));
        ck_assert_ok(rps_npu_copy(
                stream, bytes, address, sizeof(bytes), RPS_NPU_TO_HOST));
        for (size_t i = 0; i < sizeof(bytes); i++) {
            ck_assert_uint_eq(bytes[i], 0);
        }
        ck_assert_ok(rps_npu_fill_async(stream, address, 9, sizeof(bytes)));
        ck_assert_ok(rps_npu_free(npu, address));
    }
    rps_npu_stream_destroy(stream);
    rps_npu_close(npu);
}
END_TEST

START_TEST(out_of_memory_tells_how_much_there_is)
{
    rps_npu *npu = open_npu();
    const uint64_t mib = UINT64_C(1) << 20;
    void *a = take_memory(npu, 24 * mib);
    void *b = take_memory(npu, 24 * mib);
    void *c = &a;

    ck_assert_int_eq(rps_npu_malloc(npu, 20 * mib, &c), RPS_E_NOMEM);
    ck_assert_ptr_null(c);
    assert_words("20971520 bytes asked for");
    assert_words("capacity of 67108864");
    assert_words("50331648 are taken");
    assert_words("largest free range has 16777216");
    ck_assert_int_eq(rps_npu_malloc(npu, UINT64_MAX, &c), RPS_E_NOMEM);
    ck_assert_int_eq(rps_npu_malloc(npu, 0, &c), RPS_E_INVAL);
    ck_assert_ok(rps_npu_free(npu, a));
    c = take_memory(npu, 20 * mib);
    ck_assert_ok(rps_npu_free(npu, c));
    ck_assert_ok(rps_npu_free(npu, b));
    rps_npu_close(npu);
}
END_TEST

START_TEST(pointers_of_the_wrong_side_and_ranges_that_leave_are_refused)
{
    rps_npu *npu = open_npu();
    rps_npu *other = NULL;
    rps_npu_stream *stream = open_stream(npu, "compute");
    char *device = take_memory(npu, 8192);
    char host[64];
    void *far = NULL;

    ck_assert_ok(rps_npu_open(&other, 1, NULL));
    far = take_memory(other, 4096);
    ck_assert_int_eq(rps_npu_copy(stream, host, host, 64, RPS_NPU_TO_DEVICE),
            RPS_E_INVAL);
    assert_words("copy to the device: to:");
    assert_words("is an address of the host");
    ck_assert_int_eq(
            rps_npu_copy(stream, device, device + 4096, 64, RPS_NPU_TO_DEVICE),
            RPS_E_INVAL);
    assert_words("from:");
    ck_assert_int_eq(
            rps_npu_copy(stream, host, far, 64, RPS_NPU_TO_HOST), RPS_E_INVAL);
    assert_words("another device's address");
    ck_assert_int_eq(rps_npu_copy(stream, far, device, 64, RPS_NPU_TO_HOST),
            RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_copy(stream, host, device + 8190, 3, RPS_NPU_TO_HOST),
            RPS_E_INVAL);
    assert_words("ends after 2");
    ck_assert_int_eq(
            rps_npu_copy(stream, host, device + 1, UINT64_MAX, RPS_NPU_TO_HOST),
            RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_copy(stream, device, device + 10, 11, RPS_NPU_ON_DEVICE),
            RPS_E_INVAL);
    assert_words("overlap");
    ck_assert_int_eq(rps_npu_fill_async(stream, host, 0, 1), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_copy(NULL, host, device, 1, RPS_NPU_TO_HOST), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_copy(stream, host, device, 1, (enum rps_npu_copy)3),
            RPS_E_INVAL);
    ck_assert_ok(
            rps_npu_copy(stream, device, device + 10, 10, RPS_NPU_ON_DEVICE));
    ck_assert_ok(rps_npu_free(npu, device));
    ck_assert_int_eq(rps_npu_copy(stream, host, device, 1, RPS_NPU_TO_HOST),
            RPS_E_INVAL);
    assert_words("free memory of this device");
    ck_assert_ok(rps_npu_free(other, far));
    rps_npu_stream_destroy(stream);
    rps_npu_close(other);
    rps_npu_close(npu);
}
END_TEST

START_TEST(calls_without_what_they_need_are_refused)
{
    rps_npu *npu = open_npu();
    rps_npu_stream *stream = NULL;
    rps_npu_event *event = NULL;
    void *address = NULL;

    ck_assert_int_eq(rps_npu_open(NULL, 1, NULL), RPS_E_INVAL);
    assert_words("open a device: no npu_out is given");
    ck_assert_int_eq(rps_npu_stream_create(NULL, "s", &stream), RPS_E_INVAL);
    assert_words("create a stream: no device is given");
    ck_assert_ptr_null(stream);
    ck_assert_int_eq(rps_npu_stream_create(npu, "t", NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_event_create(NULL, &event), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_event_create(npu, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_malloc(NULL, 8, &address), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_malloc(npu, 8, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_free(NULL, npu), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_pool_free(NULL, npu), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_pool_alloc(NULL, 8, &address), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_synchronize(NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_stream_synchronize(NULL), RPS_E_INVAL);
    rps_npu_close(npu);
}
END_TEST

START_TEST(a_range_of_the_pool_lies_in_one_block_that_is_in_use)
{
    rps_npu *npu = open_npu();
    rps_npu_stream *stream = open_stream(npu, "compute");
    void *first = NULL;
    void *second = NULL;

    ck_assert_ok(rps_npu_pool_alloc(stream, 1000, &first));
    ck_assert_ok(rps_npu_pool_alloc(stream, 1000, &second));
    ck_assert_ok(rps_npu_fill_async(stream, first, 0, 1000));
    ck_assert_ok(rps_npu_fill_async(stream, (char *)first + 999, 0, 1));
    ck_assert_int_eq(rps_npu_fill_async(stream, first, 0, 1001), RPS_E_INVAL);
    assert_words("ends after 1000");
    ck_assert_int_eq(rps_npu_fill_async(stream, (char *)first + 1000, 0, 1),
            RPS_E_INVAL);
    ck_assert_ok(rps_npu_pool_free(npu, first));
    ck_assert_int_eq(rps_npu_fill_async(stream, first, 0, 1), RPS_E_INVAL);
    assert_words("free memory of this device");
    ck_assert_ok(rps_npu_fill_async(stream, second, 0, 1000));
    ck_assert_ok(rps_npu_pool_free(npu, second));
    rps_npu_stream_destroy(stream);
    rps_npu_close(npu);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");

    use_own_host();
    tcase_add_test(tcase, a_device_is_open_once_in_a_process);
    tcase_add_test(
            tcase, a_device_of_another_process_is_refused_until_that_is_killed);
    tcase_add_test(tcase, a_child_does_not_have_its_parents_device);
    tcase_add_test(tcase, options_out_of_range_are_refused_in_words);
    tcase_add_test(tcase, two_hosts_have_devices_of_their_own);
    tcase_add_test(tcase, a_host_that_follows_a_device_pointer_faults);
    tcase_add_test(tcase, memory_is_aligned_counted_and_given_back);
    tcase_add_test(tcase, memory_is_zeroed_also_when_it_was_used_before);
    tcase_add_test(tcase, out_of_memory_tells_how_much_there_is);
    tcase_add_test(tcase,
            pointers_of_the_wrong_side_and_ranges_that_leave_are_refused);
    tcase_add_test(tcase, a_range_of_the_pool_lies_in_one_block_that_is_in_use);
    tcase_add_test(tcase, calls_without_what_they_need_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
