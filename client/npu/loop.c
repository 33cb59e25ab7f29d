/* SPDX-License-Identifier: Apache-2.0 */
/* How many iterations a launch has, and runs of many launches. */
#include "base/text.h"
#include "client/npu/error.h"
#include "client/npu/launch.h"

#include <inttypes.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    uint64_t size; /* lock; 0: not asked for yet */
    bool bad; /* lock; NPU_LOOP_SIZE is no size, and nothing else was set */
} loop = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool
is_size(uint64_t size)
{
    return size > 0 && size <= RPS_NPU_LOOP_SIZE_MAX;
}

static void
read_variable_locked(void)
{
    const char *text = getenv("NPU_LOOP_SIZE");

    loop.size = 1;
    if (text != NULL && text[0] != '\0') {
        uint64_t size = 0;

        loop.bad = !rps_parse_u64(text, &size) || !is_size(size);
        loop.size = loop.bad ? 1 : size;
    }
}

rps_status
rps_npu_loop_size(uint64_t *size_out)
{
    bool bad = false;

    pthread_mutex_lock(&loop.lock);
    if (loop.size == 0) {
        read_variable_locked();
    }
    *size_out = loop.size;
    bad = loop.bad;
    pthread_mutex_unlock(&loop.lock);
    if (bad) {
        return rps_npu_fail(RPS_E_INVAL,
                "NPU_LOOP_SIZE is no number of iterations: 1 to %u are allowed",
                RPS_NPU_LOOP_SIZE_MAX);
    }
    return RPS_OK;
}

rps_status
rps_npu_set_loop_size(uint64_t size)
{
    if (!is_size(size)) {
        return rps_npu_fail(RPS_E_INVAL,
                "set the loop size: %" PRIu64 " iterations; 1 to %u are "
                "allowed",
                size, RPS_NPU_LOOP_SIZE_MAX);
    }
    pthread_mutex_lock(&loop.lock);
    loop.size = size;
    loop.bad = false;
    pthread_mutex_unlock(&loop.lock);
    return RPS_OK;
}

/* One launch; *whole_out: its whole iterations. */
static rps_status
run_loop(rps_npu_stream *stream, rps_npu_step *step, uint64_t count,
        uint64_t *whole_out)
{
    const rps_status status =
            rps_npu_launch_counted(stream, step, count, whole_out);

    return status == RPS_OK ? rps_npu_stream_synchronize(stream) : status;
}

rps_status
rps_npu_run(rps_npu_stream *stream, rps_npu_step *step, uint64_t steps,
        uint64_t *done_out)
{
    rps_status status = RPS_OK;
    uint64_t done = 0;
    bool ended = false;

    while (done < steps && !ended && status == RPS_OK) {
        uint64_t size = 0;
        uint64_t whole = 0;

        status = rps_npu_loop_size(&size);
        if (status == RPS_OK) {
            size = size < steps - done ? size : steps - done;
            status = run_loop(stream, step, size, &whole);
            done += whole;
            ended = whole < size;
        }
    }
    if (done_out != NULL) {
        *done_out = done;
    }
    return status;
}
