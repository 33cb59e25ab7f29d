/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_WORKER_METRICS_H
#define RPS_WORKER_METRICS_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Area under the ROC curve, ties averaged (Mann-Whitney U / (P N)). False if
 * there is only one class (no AUC) or no memory.
 *
 * Shapes: scores[n], labels[n * label_stride], label i at i * label_stride.
 */
bool rps_auc(const float *scores, const float *labels, size_t label_stride,
        size_t n, double *auc_out);

/** Mean of -log p(label), p clamped to [1e-15, 1 - 1e-15], in double. */
double rps_log_loss(const float *scores, const float *labels,
        size_t label_stride, size_t n);

#endif /* RPS_WORKER_METRICS_H */
