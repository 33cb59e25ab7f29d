/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a group, for the files of this folder. */
#ifndef RPS_CLIENT_COLLECTIVE_H
#define RPS_CLIENT_COLLECTIVE_H

#include <recps/collective.h>

#include <mpi.h>

struct rps_collective {
    MPI_Comm world; /* by rank; errors come back */
    MPI_Comm ring;  /* the same processes, by their place in the ring */
    uint32_t rank;
    uint32_t size;
    uint32_t local_rank;
    uint32_t local_size;
    enum rps_allreduce algorithm;
    int *places;   /* [size], of each rank in the ring; owned */
    float *bucket; /* [bucket_floats]; owned, NULL until the first use */
    size_t bucket_floats;
};

/** Keep the words for rps_collective_error(); returns the status. */
rps_status rps_collective_fail(rps_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/** What an MPI call that failed means, in its own words. RPS_OK for
 * MPI_SUCCESS. */
rps_status rps_collective_check(int code, const char *what);

#endif /* RPS_CLIENT_COLLECTIVE_H */
