/* SPDX-License-Identifier: Apache-2.0 */
/* Built without MPI: there is no group, and it is said. */
#include "client/worker/group.h"

#include <assert.h>

rps_status
rps_group_open(struct rps_group **group_out,
        const struct rps_settings *settings, struct rps_error *error)
{
    *group_out = NULL;
    return rps_group_check(settings, error);
}

rps_status
rps_group_check(const struct rps_settings *settings, struct rps_error *error)
{
    (void)settings;
    return rps_fail(error, RPS_E_UNSUPPORTED,
            "--dense allreduce: this recps-train was built without MPI: "
            "install Open MPI (Debian: openmpi-bin libopenmpi-dev) and build "
            "again with -Dmpi=enabled, or use --dense ps");
}

rps_status
rps_group_end(struct rps_group *group, int code, struct rps_error *error)
{
    (void)group;
    (void)code;
    (void)error;
    return RPS_OK;
}

/* No group was opened: nobody calls these. */

static rps_status
no_group(struct rps_error *error)
{
    assert(!"there is no group");
    return rps_fail(error, RPS_E_UNSUPPORTED, "built without MPI");
}

rps_status
rps_group_begin(struct rps_group *group, struct rps_tables *tables,
        bool restored, enum rps_combine combine, struct rps_error *error)
{
    (void)group;
    (void)tables;
    (void)restored;
    (void)combine;
    return no_group(error);
}

rps_status
rps_group_step(struct rps_group *group, uint64_t step, double rate, bool skip,
        struct rps_error *error)
{
    (void)group;
    (void)step;
    (void)rate;
    (void)skip;
    return no_group(error);
}

rps_status
rps_group_publish(struct rps_group *group, struct rps_tables *tables,
        struct rps_error *error)
{
    (void)group;
    (void)tables;
    return no_group(error);
}

rps_status
rps_group_compare(struct rps_group *group, struct rps_error *error)
{
    (void)group;
    return no_group(error);
}

char *
rps_group_describe(const struct rps_group *group, char out[128])
{
    (void)group;
    out[0] = '\0';
    return out;
}
