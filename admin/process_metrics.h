/* SPDX-License-Identifier: Apache-2.0 */
/* The process_ family of metrics, as Prometheus' own clients name it. */
#ifndef RPS_ADMIN_PROCESS_METRICS_H
#define RPS_ADMIN_PROCESS_METRICS_H

#include "base/text.h"

/** Add what the kernel counts about this process now. */
void rps_process_metrics_add(struct rps_text *text);

#endif /* RPS_ADMIN_PROCESS_METRICS_H */
