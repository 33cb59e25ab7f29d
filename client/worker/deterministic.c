/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/deterministic.h"

rps_status
rps_deterministic_check_terms(const rps_terms *terms, struct rps_error *error)
{
    if (terms->mode != RPS_MODE_SYNC) {
        return rps_fail(error, RPS_E_INVAL,
                "--deterministic needs --mode sync: in the others a push is "
                "applied when it arrives, so the order is the network's");
    }
    if (terms->backup_workers > 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--deterministic does not go with --backup-workers=%u: which "
                "replicas a step counts is a matter of time",
                terms->backup_workers);
    }
    return RPS_OK;
}

rps_status
rps_deterministic_check_threads(uint64_t blas_threads, struct rps_error *error)
{
    if (blas_threads != 1) {
        return rps_fail(error, RPS_E_INVAL,
                "--deterministic does not go with --blas-threads=%llu: a "
                "product that is shared out is added in another order; leave "
                "it at 1",
                (unsigned long long)blas_threads);
    }
    return RPS_OK;
}

rps_status
rps_deterministic_check_table(
        const rps_table_spec *spec, struct rps_error *error)
{
    if (spec->max_cold_secs != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--deterministic: table %s has max_cold_secs %llu: its rows "
                "leave by the clock; set it to 0",
                spec->name, (unsigned long long)spec->max_cold_secs);
    }
    if (spec->max_cold_steps != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--deterministic: table %s has max_cold_steps %llu: its rows "
                "leave when the servers' upkeep comes by, some steps later; "
                "set it to 0",
                spec->name, (unsigned long long)spec->max_cold_steps);
    }
    if (spec->on_full != RPS_ON_FULL_REFUSE) {
        return rps_fail(error, RPS_E_INVAL,
                "--deterministic: table %s evicts rows when memory is full "
                "(on_full), which comes when its server has no more; set "
                "on_full to refuse",
                spec->name);
    }
    return RPS_OK;
}
