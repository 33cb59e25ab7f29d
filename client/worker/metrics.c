/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/metrics.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define CLAMP 1e-15

struct scored {
    float score;
    float label;
};

static int
compare_scores(const void *a, const void *b)
{
    const struct scored *x = a;
    const struct scored *y = b;

    return x->score < y->score ? -1 : x->score > y->score;
}

/* Twice the Mann-Whitney U: 2 a pair won, 1 a tie. */
static double
twice_u(const struct scored *sorted, size_t n)
{
    double negatives = 0.0; /* below the run of equal scores in hand */
    double sum = 0.0;
    size_t i = 0;

    while (i < n) {
        double run[2] = {0.0, 0.0};
        size_t end = i;

        while (end < n && sorted[end].score == sorted[i].score) {
            run[sorted[end].label > 0.5f] += 1.0;
            end++;
        }
        sum += run[1] * (2.0 * negatives + run[0]);
        negatives += run[0];
        i = end;
    }
    return sum;
}

bool
rps_auc(const float *scores, const float *labels, size_t label_stride, size_t n,
        double *auc_out)
{
    struct scored *sorted;
    size_t positives = 0;
    size_t i;

    if (n == 0 || n > SIZE_MAX / sizeof(*sorted)) {
        return false;
    }
    sorted = malloc(n * sizeof(*sorted));
    if (sorted == NULL) {
        return false;
    }
    for (i = 0; i < n && !isnan(scores[i]); i++) {
        sorted[i].score = scores[i];
        sorted[i].label = labels[i * label_stride];
        positives += sorted[i].label > 0.5f;
    }
    if (i < n || positives == 0 || positives == n) {
        free(sorted);
        return false;
    }
    qsort(sorted, n, sizeof(*sorted), compare_scores);
    *auc_out = twice_u(sorted, n) /
               (2.0 * (double)positives * (double)(n - positives));
    free(sorted);
    return true;
}

double
rps_log_loss(
        const float *scores, const float *labels, size_t label_stride, size_t n)
{
    double sum = 0.0;
    size_t i;

    for (i = 0; i < n; i++) {
        double p = (double)scores[i];

        if (!isnan(p)) {
            p = fmin(fmax(p, CLAMP), 1.0 - CLAMP);
        }
        sum -= labels[i * label_stride] > 0.5f ? log(p) : log1p(-p);
    }
    return n == 0 ? (double)NAN : sum / (double)n;
}
