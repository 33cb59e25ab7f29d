/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu_snapshot: a device's pool in a state that has all there is, as JSON on
 * stdout: {"snapshot": ..., "report": ...}.
 */
#include <recps/npu.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB  UINT64_C(1048576)
#define MOST 64

static void
must(rps_status status)
{
    if (status != RPS_OK) {
        fprintf(stderr, "npu_snapshot: %s\n", rps_npu_error());
        exit(EXIT_FAILURE);
    }
}

static void *
alloc(rps_npu_stream *stream, uint64_t bytes)
{
    void *address = NULL;

    must(rps_npu_pool_alloc(stream, bytes, &address));
    return address;
}

static rps_status
wait_for_end(void *context)
{
    char byte;

    return read(*(int *)context, &byte, 1) == 0 ? RPS_OK : RPS_E_IO;
}

/* Every other one of many small blocks, and of some large ones. */
static void
fragment(rps_npu *npu, rps_npu_stream *stream)
{
    void *blocks[MOST];

    for (size_t i = 0; i < MOST; i++) {
        blocks[i] = alloc(stream, i % 8 == 0 ? 3 * MIB : 1000 * (i + 1));
    }
    for (size_t i = 0; i < MOST; i += 2) {
        must(rps_npu_pool_free(npu, blocks[i]));
    }
}

static rps_npu_step *
capture(rps_npu *npu, rps_npu_stream *stream)
{
    rps_npu_step *step = NULL;

    must(rps_npu_capture_begin(stream));
    must(rps_npu_pool_free(npu, alloc(stream, 2 * MIB)));
    (void)alloc(stream, 5000);
    must(rps_npu_capture_end(stream, &step));
    return step;
}

static int
print(rps_npu *npu)
{
    char *snapshot = rps_npu_pool_snapshot(npu);
    char *report = rps_npu_pool_report(npu, RPS_NPU_JSON);
    json_t *both =
            json_pack("{soso}", "snapshot", json_loads(snapshot, 0, NULL),
                    "report", json_loads(report, 0, NULL));
    const int rc = json_dumpf(both, stdout, JSON_COMPACT);

    json_decref(both);
    free(snapshot);
    free(report);
    return rc;
}

int
main(void)
{
    rps_npu *npu = NULL;
    rps_npu_stream *compute = NULL;
    rps_npu_stream *comm = NULL;
    rps_npu_step *step = NULL;
    void *waits = NULL;
    int ends[2];
    int rc;

    must(rps_npu_open(&npu, 0, NULL));
    must(rps_npu_stream_create(npu, "compute", &compute));
    must(rps_npu_stream_create(npu, "comm", &comm));
    fragment(npu, compute);
    step = capture(npu, compute);
    waits = alloc(comm, 30 * MIB);
    if (pipe(ends) != 0) {
        return EXIT_FAILURE;
    }
    must(rps_npu_pool_record_stream(waits, compute));
    must(rps_npu_call_async(compute, "wait", wait_for_end, &ends[0]));
    must(rps_npu_pool_free(npu, waits));
    rc = print(npu);
    close(ends[1]);
    must(rps_npu_synchronize(npu));
    rps_npu_step_destroy(step);
    rps_npu_stream_destroy(compute);
    rps_npu_stream_destroy(comm);
    rps_npu_close(npu);
    return rc == 0 && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
