/* SPDX-License-Identifier: Apache-2.0 */
/* Words of failures: rps_npu_fail() (operation.h) and its short forms. */
#ifndef RPS_NPU_ERROR_H
#define RPS_NPU_ERROR_H

#include "base/error.h"
#include "client/npu/operation.h"

/** RPS_E_NOMEM of the host: "`what`: the host has no memory left". */
rps_status rps_npu_nomem(const char *what);

/** A pointer that a call needs is NULL: INVAL, with words. */
rps_status rps_npu_missing(const char *operation, const char *what);

#endif /* RPS_NPU_ERROR_H */
