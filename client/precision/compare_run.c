/* SPDX-License-Identifier: Apache-2.0 */
/* Two whole dumps: the steps that both have, each compared for itself. */
#include "client/precision/compare_impl.h"

#include <inttypes.h>
#include <stdlib.h>

/* A step of each side, by place in its list. */
struct step_pair {
    uint32_t left, right;
};

struct pairing {
    const struct rps_dumped_steps *left, *right;
    struct step_pair *pairs;
    uint32_t count;
    struct rps_compare_run *run;
};

static bool
pairing_init(struct pairing *pairing)
{
    const size_t left = (size_t)pairing->left->count + 1;
    const size_t right = (size_t)pairing->right->count + 1;

    pairing->pairs = calloc(left, sizeof(*pairing->pairs));
    pairing->run->left_alone = calloc(left, sizeof(uint64_t));
    pairing->run->right_alone = calloc(right, sizeof(uint64_t));
    pairing->run->steps = calloc(left, sizeof(*pairing->run->steps));
    return pairing->pairs != NULL && pairing->run->left_alone != NULL &&
           pairing->run->right_alone != NULL && pairing->run->steps != NULL;
}

/* Both lists ascend. */
static void
pair_steps(struct pairing *pairing)
{
    const struct rps_dumped_steps *left = pairing->left;
    const struct rps_dumped_steps *right = pairing->right;
    struct rps_compare_run *run = pairing->run;
    uint32_t l = 0, r = 0;

    if (left->count == 1 && right->count == 1) {
        pairing->pairs[pairing->count++] = (struct step_pair){0, 0};
        return;
    }
    while (l < left->count || r < right->count) {
        if (r == right->count ||
                (l < left->count && left->steps[l] < right->steps[r])) {
            run->left_alone[run->left_alone_count++] = left->steps[l++];
        } else if (l == left->count || right->steps[r] < left->steps[l]) {
            run->right_alone[run->right_alone_count++] = right->steps[r++];
        } else {
            pairing->pairs[pairing->count++] = (struct step_pair){l++, r++};
        }
    }
    run->single = left->count == 1 || right->count == 1;
}

/* The first that differs; one that cannot be compared where there is none. */
static bool
decides(const struct rps_compare_step *step,
        const struct rps_compare_step *first)
{
    const enum rps_compare_verdict verdict = step->comparison->verdict;

    return verdict != RPS_VERDICT_SAME &&
           (first == NULL ||
                   (first->comparison->verdict == RPS_VERDICT_INCOMPARABLE &&
                           verdict != RPS_VERDICT_INCOMPARABLE));
}

static rps_status
compare_pair(const struct pairing *pairing, uint32_t which,
        const struct rps_compare_options *options, struct rps_error *error)
{
    struct rps_compare_run *run = pairing->run;
    struct rps_compare_step *step = &run->steps[run->count];
    const struct step_pair *pair = &pairing->pairs[which];
    rps_status status;

    run->count++;
    step->step = pairing->left->steps[pair->left];
    status = rps_dumped_open(
            pairing->left->folders[pair->left], &step->left, error);
    if (status == RPS_OK) {
        status = rps_dumped_open(
                pairing->right->folders[pair->right], &step->right, error);
    }
    if (status == RPS_OK) {
        status = rps_compare(
                step->left, step->right, options, &step->comparison, error);
    }
    if (status == RPS_OK) {
        run->problems += step->comparison->problems;
        if (decides(step, run->first)) {
            run->first = step;
        }
    }
    return status;
}

static rps_status
compare_steps(const struct rps_dumped_steps *left,
        const struct rps_dumped_steps *right, struct rps_compare_run *run,
        const struct rps_compare_options *options, struct rps_error *error)
{
    struct pairing pairing = {.left = left, .right = right, .run = run};
    rps_status status = RPS_OK;

    if (!pairing_init(&pairing)) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory to compare");
    } else {
        pair_steps(&pairing);
    }
    if (status == RPS_OK && pairing.count == 0) {
        status = rps_fail(error, RPS_E_NOT_FOUND,
                "no step is in both: the first one of the left is %" PRIu64
                ", of the right %" PRIu64,
                left->steps[0], right->steps[0]);
    }
    for (uint32_t i = 0; status == RPS_OK && i < pairing.count; i++) {
        status = compare_pair(&pairing, i, options, error);
    }
    if (!run->single) {
        run->problems += run->left_alone_count + run->right_alone_count;
    }
    free(pairing.pairs);
    return status;
}

rps_status
rps_compare_dumps(const char *left, const char *right,
        const struct rps_compare_options *options,
        struct rps_compare_run **run_out, struct rps_error *error)
{
    struct rps_compare_run *run = calloc(1, sizeof(*run));
    struct rps_dumped_steps sides[2] = {{.count = 0}, {.count = 0}};
    rps_status status = run != NULL ? RPS_OK : RPS_E_NOMEM;

    *run_out = NULL;
    if (status != RPS_OK) {
        return rps_fail(error, status, "no memory to compare");
    }
    status = rps_dumped_find(left, &sides[0], error);
    if (status == RPS_OK) {
        status = rps_dumped_find(right, &sides[1], error);
    }
    if (status == RPS_OK) {
        status = compare_steps(&sides[0], &sides[1], run, options, error);
    }
    rps_dumped_steps_free(&sides[0]);
    rps_dumped_steps_free(&sides[1]);
    if (status != RPS_OK) {
        rps_compare_run_free(run);
        return status;
    }
    *run_out = run;
    return RPS_OK;
}

void
rps_compare_run_free(struct rps_compare_run *run)
{
    if (run == NULL) {
        return;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        rps_comparison_free(run->steps[i].comparison);
        rps_dumped_close(run->steps[i].left);
        rps_dumped_close(run->steps[i].right);
    }
    free(run->steps);
    free(run->left_alone);
    free(run->right_alone);
    free(run);
}
