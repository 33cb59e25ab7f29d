/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns MPI: started once, two communicators of all ranks (one in the order of
 * ranks, one in that of the ring), ended once. What is sent is reduce.c's.
 */
#include "client/collective/collective.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLEEP_NS         5000000 /* between two looks, at the end */
#define BUCKET_BYTES_MIN ((uint64_t)4096)
#define BUCKET_BYTES_MAX ((uint64_t)4 << 30)
#define RING_ALGORITHM   4 /* Open MPI's coll/tuned: ring */

/* One group a process, used by one thread: so are its words. */
static char words[1024];

rps_status
rps_collective_fail(rps_status status, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    (void)vsnprintf(words, sizeof(words), format, list);
    va_end(list);
    return status;
}

rps_status
rps_collective_check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    int kind = MPI_ERR_OTHER;

    if (code == MPI_SUCCESS) {
        return RPS_OK;
    }
    (void)MPI_Error_string(code, text, &length);
    (void)MPI_Error_class(code, &kind);
    switch (kind) {
    case MPI_ERR_NO_MEM:
        return rps_collective_fail(RPS_E_NOMEM, "%s: %s", what, text);
    case MPI_ERR_TRUNCATE:
        return rps_collective_fail(RPS_E_MISMATCH,
                "%s: %s: not every rank gave the same size", what, text);
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_ROOT:
        return rps_collective_fail(RPS_E_INVAL, "%s: %s", what, text);
    default:
        return rps_collective_fail(RPS_E_UNREACHABLE, "%s: %s", what, text);
    }
}

const char *
rps_collective_error(const rps_collective *collective)
{
    (void)collective;
    return words;
}

void
rps_collective_options_init(rps_collective_options *options)
{
    if (options == NULL) {
        return;
    }
    memset(options, 0, sizeof(*options));
    options->struct_bytes = sizeof(*options);
    options->bucket_bytes = (uint64_t)16 << 20;
}

/* --- start --------------------------------------------------------------- */

static rps_status
check_options(const rps_collective_options *options)
{
    if (options == NULL || options->struct_bytes != sizeof(*options)) {
        return rps_collective_fail(RPS_E_INVAL,
                "options: fill them with rps_collective_options_init()");
    }
    if (options->algorithm != RPS_ALLREDUCE_DEFAULT &&
            options->algorithm != RPS_ALLREDUCE_RING) {
        return rps_collective_fail(RPS_E_INVAL,
                "algorithm: %d is neither DEFAULT nor RING",
                (int)options->algorithm);
    }
    if (options->bucket_bytes < BUCKET_BYTES_MIN ||
            options->bucket_bytes > BUCKET_BYTES_MAX) {
        return rps_collective_fail(RPS_E_INVAL,
                "bucket_bytes: %llu; must be from %llu to %llu",
                (unsigned long long)options->bucket_bytes,
                (unsigned long long)BUCKET_BYTES_MIN,
                (unsigned long long)BUCKET_BYTES_MAX);
    }
    return RPS_OK;
}

/* The variables are read when MPI starts; the user's own give way, as the
 * ring was asked for by name. */
static rps_status
ask_for_ring(const rps_collective_options *options)
{
    char number[16];

    if (options->algorithm != RPS_ALLREDUCE_RING) {
        return RPS_OK;
    }
    (void)snprintf(number, sizeof(number), "%d", RING_ALGORITHM);
    if (setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 1) != 0 ||
            setenv("OMPI_MCA_coll_tuned_allreduce_algorithm", number, 1) != 0) {
        return rps_collective_fail(RPS_E_NOMEM, "no memory for a variable");
    }
    return RPS_OK;
}

/* Does this MPI know of it? Its tool interface answers. */
static rps_status
check_ring(const rps_collective_options *options)
{
    MPI_T_cvar_handle handle;
    int provided = 0;
    int index = -1;
    int count = 0;
    int value = -1;

    if (options->algorithm != RPS_ALLREDUCE_RING) {
        return RPS_OK;
    }
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) {
        return rps_collective_fail(
                RPS_E_UNSUPPORTED, "this MPI's tool interface does not start");
    }
    if (MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) ==
                    MPI_SUCCESS &&
            MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) ==
                    MPI_SUCCESS) {
        if (MPI_T_cvar_read(handle, &value) != MPI_SUCCESS) {
            value = -1;
        }
        (void)MPI_T_cvar_handle_free(&handle);
    }
    (void)MPI_T_finalize();
    return value == RING_ALGORITHM
                   ? RPS_OK
                   : rps_collective_fail(RPS_E_UNSUPPORTED,
                             "this Open MPI has no ring allreduce "
                             "(coll_tuned_allreduce_algorithm 4): take the "
                             "default algorithm");
}

static rps_status
start_mpi(void)
{
    int is_there = 0;
    int provided = MPI_THREAD_SINGLE;
    rps_status status =
            rps_collective_check(MPI_Initialized(&is_there), "MPI_Initialized");

    if (status != RPS_OK) {
        return status;
    }
    if (is_there != 0) {
        return rps_collective_fail(RPS_E_INVAL,
                "MPI was started in this process before: it starts once only");
    }
    status = rps_collective_check(
            MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
            "MPI_Init_thread");
    if (status == RPS_OK && provided < MPI_THREAD_SERIALIZED) {
        return rps_collective_fail(RPS_E_UNSUPPORTED,
                "this MPI has no MPI_THREAD_SERIALIZED (it gives %d)",
                provided);
    }
    return status;
}

static rps_status
read_ranks(rps_collective *group)
{
    MPI_Comm host = MPI_COMM_NULL;
    int rank = 0;
    int size = 0;
    rps_status status = rps_collective_check(
            MPI_Comm_dup(MPI_COMM_WORLD, &group->world), "MPI_Comm_dup");

    if (status != RPS_OK) {
        return status;
    }
    (void)MPI_Comm_set_errhandler(group->world, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(group->world, &rank);
    (void)MPI_Comm_size(group->world, &size);
    group->rank = (uint32_t)rank;
    group->size = (uint32_t)size;
    status = rps_collective_check(
            MPI_Comm_split_type(group->world, MPI_COMM_TYPE_SHARED, rank,
                    MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
    if (status != RPS_OK) {
        return status;
    }
    (void)MPI_Comm_rank(host, &rank);
    (void)MPI_Comm_size(host, &size);
    group->local_rank = (uint32_t)rank;
    group->local_size = (uint32_t)size;
    return rps_collective_check(MPI_Comm_free(&host), "MPI_Comm_free");
}

/* places[order[p]] = p, each rank once; by rank where there is no order. */
static rps_status
read_order(rps_collective *group, const rps_collective_options *options)
{
    const bool given = options->order != NULL;

    group->places = malloc(group->size * sizeof(*group->places));
    if (group->places == NULL) {
        return rps_collective_fail(RPS_E_NOMEM, "no memory for the ranks");
    }
    if (given && options->order_count != group->size) {
        return rps_collective_fail(RPS_E_MISMATCH,
                "the order of the ring has %u ranks, the group %u",
                options->order_count, group->size);
    }
    for (uint32_t r = 0; r < group->size; r++) {
        group->places[r] = given ? -1 : (int)r;
    }
    for (uint32_t p = 0; given && p < group->size; p++) {
        const uint32_t rank = options->order[p];

        if (rank >= group->size || group->places[rank] >= 0) {
            return rps_collective_fail(RPS_E_INVAL,
                    "the order of the ring: rank %u at place %u %s", rank, p,
                    rank >= group->size ? "is not one of the group"
                                        : "stands there twice");
        }
        group->places[rank] = (int)p;
    }
    return RPS_OK;
}

static rps_status
make_ring(rps_collective *group)
{
    rps_status status = rps_collective_check(
            MPI_Comm_split(
                    group->world, 0, group->places[group->rank], &group->ring),
            "MPI_Comm_split");

    if (status == RPS_OK) {
        (void)MPI_Comm_set_errhandler(group->ring, MPI_ERRORS_RETURN);
    }
    return status;
}

/* Once MPI runs. */
static rps_status
join(rps_collective *group, const rps_collective_options *options)
{
    rps_status status = RPS_OK;

    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    status = check_ring(options);
    if (status == RPS_OK) {
        status = read_ranks(group);
    }
    if (status == RPS_OK) {
        status = read_order(group, options);
    }
    return status == RPS_OK ? make_ring(group) : status;
}

static void
destroy(rps_collective *group)
{
    free(group->places);
    free(group->bucket);
    free(group);
}

rps_status
rps_collective_initialize(
        rps_collective **collective_out, const rps_collective_options *options)
{
    rps_collective *group = NULL;
    rps_status status = check_options(options);

    *collective_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return rps_collective_fail(RPS_E_NOMEM, "no memory for the group");
    }
    group->world = MPI_COMM_NULL;
    group->ring = MPI_COMM_NULL;
    group->algorithm = options->algorithm;
    group->bucket_floats = (size_t)(options->bucket_bytes / sizeof(float));
    status = ask_for_ring(options);
    if (status == RPS_OK) {
        status = start_mpi();
    }
    if (status == RPS_OK) {
        status = join(group, options);
        if (status != RPS_OK) { /* all ranks see the same: none hangs here */
            (void)MPI_Finalize();
        }
    }
    if (status != RPS_OK) {
        destroy(group);
        return status;
    }
    *collective_out = group;
    return RPS_OK;
}

/* --- end ----------------------------------------------------------------- */

/*
 * A barrier that sleeps: rank 0 may still evaluate and save, and those that
 * wait for it in MPI would take its cores.
 */
static rps_status
wait_for_all(rps_collective *group)
{
    const struct timespec nap = {.tv_nsec = SLEEP_NS};
    MPI_Request request = MPI_REQUEST_NULL;
    int done = 0;
    rps_status status = rps_collective_check(
            MPI_Ibarrier(group->world, &request), "barrier");

    while (status == RPS_OK && done == 0) {
        status = rps_collective_check(
                MPI_Test(&request, &done, MPI_STATUS_IGNORE), "barrier");
        if (status == RPS_OK && done == 0) {
            (void)nanosleep(&nap, NULL);
        }
    }
    return status;
}

rps_status
rps_collective_shutdown(rps_collective *collective)
{
    rps_status status = RPS_OK;
    rps_status ended = RPS_OK;

    if (collective == NULL) {
        return RPS_OK;
    }
    status = wait_for_all(collective);
    (void)MPI_Comm_free(&collective->ring);
    (void)MPI_Comm_free(&collective->world);
    ended = rps_collective_check(MPI_Finalize(), "MPI_Finalize");
    destroy(collective);
    return status != RPS_OK ? status : ended;
}

void
rps_collective_abort(rps_collective *collective, int code)
{
    (void)MPI_Abort(
            collective != NULL ? collective->world : MPI_COMM_WORLD, code);
    _Exit(code); /* MPI_Abort may return; the caller must not go on */
}

/* --- who am I ------------------------------------------------------------ */

uint32_t
rps_collective_rank(const rps_collective *collective)
{
    return collective->rank;
}

uint32_t
rps_collective_size(const rps_collective *collective)
{
    return collective->size;
}

uint32_t
rps_collective_local_rank(const rps_collective *collective)
{
    return collective->local_rank;
}

uint32_t
rps_collective_local_size(const rps_collective *collective)
{
    return collective->local_size;
}
