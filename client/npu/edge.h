/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks at the edges of a step, where its lanes meet. NULL: no memory. */
#ifndef RPS_NPU_EDGE_H
#define RPS_NPU_EDGE_H

#include "client/npu/step.h"

/** This iteration passes the edge. */
struct rps_npu_task *rps_npu_edge_reach(struct rps_npu_edge *edge);

/** Until this iteration has passed it. */
struct rps_npu_task *rps_npu_edge_await(struct rps_npu_edge *edge);

#endif /* RPS_NPU_EDGE_H */
