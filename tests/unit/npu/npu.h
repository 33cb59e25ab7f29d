/* SPDX-License-Identifier: Apache-2.0 */
/* What every test of the device does. */
#ifndef RPS_TESTS_UNIT_NPU_NPU_H
#define RPS_TESTS_UNIT_NPU_NPU_H

#include "tests/unit/suite.h"

#include <recps/npu.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* First in main(): devices of its own, beside other tests. */
static inline void
use_own_host(void)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "test-%ld", (long)getpid());
    setenv("RPS_NPU_HOST", name, 1);
}

#define ck_assert_ok(status) \
    ck_assert_msg((status) == RPS_OK, "%s: %s", #status, rps_npu_error())

static inline void
assert_words(const char *part)
{
    ck_assert_msg(strstr(rps_npu_error(), part) != NULL,
            "\"%s\" is not in \"%s\"", part, rps_npu_error());
}

static inline rps_npu *
open_npu(void)
{
    rps_npu_options options;
    rps_npu *npu = NULL;

    rps_npu_options_init(&options);
    options.memory_bytes = UINT64_C(64) << 20;
    ck_assert_ok(rps_npu_open(&npu, 0, &options));
    return npu;
}

static inline rps_npu_stream *
open_stream(rps_npu *npu, const char *name)
{
    rps_npu_stream *stream = NULL;

    ck_assert_ok(rps_npu_stream_create(npu, name, &stream));
    return stream;
}

static inline void *
take_memory(rps_npu *npu, uint64_t bytes)
{
    void *address = NULL;

    ck_assert_ok(rps_npu_malloc(npu, bytes, &address));
    return address;
}

#endif /* RPS_TESTS_UNIT_NPU_NPU_H */
