/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/precision_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TOOL "precision check-deterministic"

/* CLOSE is what undetermined sums look like: where they were determined, or
 * must be, it is not enough. */
static bool
is_fixed(const struct rps_check *check,
        const struct rps_losses_compared *compared)
{
    return compared->verdict == RPS_LOSSES_EQUAL ||
           (compared->verdict == RPS_LOSSES_CLOSE && !check->exact &&
                   !compared->exact);
}

static const char *
verdict_name(enum rps_losses_verdict verdict)
{
    static const char *const names[] = {
            [RPS_LOSSES_EQUAL] = "equal",
            [RPS_LOSSES_CLOSE] = "close",
            [RPS_LOSSES_DIFFER] = "differ",
            [RPS_LOSSES_UNEVEN] = "uneven",
    };

    return names[verdict];
}

/* --- for people ------------------------------------------------------------
 */

static void
print_first(const struct rps_losses_compared *compared)
{
    const int digits = compared->exact ? 17 : 9; /* that the logs have */

    printf("step %" PRIu64 " is the first that differs: loss %.*g in run 1, "
           "%.*g in run %zu\n",
            compared->first_step, digits, compared->first_loss[0], digits,
            compared->first_loss[1], compared->first_run + 1);
    printf("the largest difference is %.3g, at step %" PRIu64 " of run %zu\n",
            compared->largest, compared->largest_step,
            compared->largest_run + 1);
}

static void
print_close(const struct rps_check *check,
        const struct rps_losses_compared *compared)
{
    print_first(compared);
    printf("the first step is equal, later ones differ by less than %g: the "
           "randomness is fixed, the order of sums is not\n",
            check->tolerance);
    if (!is_fixed(check, compared)) {
        printf("%s: no loss may differ. Something adds in another order each "
               "time\n",
                compared->exact ? "the training is --deterministic"
                                : "--exact was asked for");
    } else {
        printf("recps-train --deterministic fixes that, too\n");
    }
}

static void
print_differ(const struct rps_check *check,
        const struct rps_losses_compared *compared)
{
    const bool at_once = compared->first_step == check->runs[0].list[0].step;

    print_first(compared);
    printf("the randomness is not fixed: %s\n",
            at_once ? "the first step differs already. Look at the order of "
                      "the data, --seed and --dense-seed, what --init-from or "
                      "--restore begins with, and dropout"
                    : "the first step is equal, and what follows drifts. Look "
                      "at --mode (async has no order), --workers that share a "
                      "step, the data behind the first step");
    if (!compared->exact) {
        printf("recps-train --deterministic refuses what lets losses differ\n");
    }
}

static void
print_uneven(const struct rps_check *check,
        const struct rps_losses_compared *compared)
{
    const size_t run = compared->uneven_run;
    const struct rps_losses *a = &check->runs[0], *b = &check->runs[run];
    const size_t even = compared->even_steps;

    if (even == 0) {
        printf("run 1 begins with step %" PRIu64 ", run %zu with step %" PRIu64
               ": they cannot be compared\n"
               "did one go on from the checkpoint that the one before left? "
               "Give each its own: --checkpoint-dir DIR/{run}\n",
                a->list[0].step, run + 1, b->list[0].step);
        return;
    }
    printf("%" PRIu64 " steps are %s, then ", compared->steps,
            compared->first_run == 0 ? "equal" : "alike");
    if (even == a->count || even == b->count) {
        const bool first = even == a->count;

        printf("run %zu ends, and run %zu goes on to step %" PRIu64 "\n",
                first ? (size_t)1 : run + 1, first ? run + 1 : (size_t)1,
                first ? b->list[b->count - 1].step
                      : a->list[a->count - 1].step);
    } else {
        printf("run 1 has step %" PRIu64 ", and run %zu step %" PRIu64 "\n",
                a->list[even].step, run + 1, b->list[even].step);
    }
}

static void
print_text(const struct rps_check *check,
        const struct rps_losses_compared *compared)
{
    printf("%zu runs, %" PRIu64 " steps compared, by %s\n", check->times,
            compared->steps,
            compared->exact ? "all bits of their losses"
                            : "the digits that their logs have (all bits with "
                              "--deterministic)");
    if (compared->not_finite) {
        printf("the loss of step %" PRIu64 " is not finite in run %zu: see "
               "recps precision nan\n",
                compared->not_finite_step, compared->not_finite_run + 1);
    }
    switch (compared->verdict) {
    case RPS_LOSSES_EQUAL:
        printf("all steps are exactly equal: the randomness is fixed\n");
        break;
    case RPS_LOSSES_CLOSE:
        print_close(check, compared);
        break;
    case RPS_LOSSES_DIFFER:
        print_differ(check, compared);
        break;
    default:
        print_uneven(check, compared);
    }
}

/* --- for programs ----------------------------------------------------------
 */

/* "3fe62e42fefa39ef": nine digits are not all. */
static json_t *
bits_of(double value)
{
    char hex[17];
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    (void)snprintf(hex, sizeof(hex), "%016" PRIx64, bits);
    return json_string(hex);
}

static json_t *
first_json(const struct rps_losses_compared *compared)
{
    return json_pack("{s:I, s:I, s:[o, o], s:[o, o]}", "step",
            (json_int_t)compared->first_step, "run",
            (json_int_t)compared->first_run + 1, "losses",
            rps_json_real(compared->first_loss[0]),
            rps_json_real(compared->first_loss[1]), "bits",
            bits_of(compared->first_loss[0]), bits_of(compared->first_loss[1]));
}

static json_t *
runs_json(const struct rps_check *check)
{
    json_t *list = json_array();

    for (size_t i = 0; i < check->times; i++) {
        const struct rps_losses *run = &check->runs[i];
        const struct rps_loss *last = &run->list[run->count - 1];

        json_array_append_new(
                list, json_pack("{s:I, s:I, s:o, s:o}", "first_step",
                              (json_int_t)run->list[0].step, "last_step",
                              (json_int_t)last->step, "last_loss",
                              rps_json_real(last->value), "log",
                              check->keep != NULL ? json_string(run->path)
                                                  : json_null()));
    }
    return list;
}

static json_t *
to_json(const struct rps_check *check,
        const struct rps_losses_compared *compared)
{
    json_t *object = json_pack("{s:s, s:b, s:b, s:I, s:f, s:o}", "verdict",
            verdict_name(compared->verdict), "fixed",
            (int)is_fixed(check, compared), "exact", (int)compared->exact,
            "steps", (json_int_t)compared->steps, "tolerance", check->tolerance,
            "runs", runs_json(check));
    const bool differ = compared->first_run > 0;

    json_object_set_new(
            object, "first", differ ? first_json(compared) : json_null());
    json_object_set_new(object, "largest",
            differ ? json_pack("{s:I, s:I, s:o}", "step",
                             (json_int_t)compared->largest_step, "run",
                             (json_int_t)compared->largest_run + 1, "by",
                             rps_json_real(compared->largest))
                   : json_null());
    json_object_set_new(object, "not_finite",
            compared->not_finite
                    ? json_pack("{s:I, s:I}", "step",
                              (json_int_t)compared->not_finite_step, "run",
                              (json_int_t)compared->not_finite_run + 1)
                    : json_null());
    return object;
}

/* --- a file ----------------------------------------------------------------
 */

/* step,run 1,run 2: a line for each step of the longest run; a run that has
 * another step there has nothing. */
static int
write_csv(const struct rps_check *check)
{
    struct rps_text text = {.bytes = NULL};
    struct rps_error error = {.text = ""};
    const struct rps_losses *longest = &check->runs[0];
    rps_status status;

    rps_text_add(&text, "step");
    for (size_t run = 0; run < check->times; run++) {
        rps_text_add(&text, ",run %zu", run + 1);
        longest = check->runs[run].count > longest->count ? &check->runs[run]
                                                          : longest;
    }
    rps_text_add(&text, "\n");
    for (size_t at = 0; at < longest->count; at++) {
        rps_text_add(&text, "%" PRIu64, longest->list[at].step);
        for (size_t run = 0; run < check->times; run++) {
            const struct rps_losses *own = &check->runs[run];
            const bool there = at < own->count &&
                               own->list[at].step == longest->list[at].step;

            rps_text_add(&text, ",");
            if (there) {
                rps_text_add(&text, "%.17g", own->list[at].value);
            }
        }
        rps_text_add(&text, "\n");
    }
    status = text.failed ? rps_fail(&error, RPS_E_NOMEM, "no memory")
                         : rps_file_replace(
                                   check->csv, text.bytes, text.length, &error);
    rps_text_finish(&text);
    return status == RPS_OK
                   ? RPS_TOOL_OK
                   : rps_tool_fail_output(TOOL, "--output", status, &error);
}

int
rps_check_answer(const struct rps_check *check)
{
    const struct rps_losses_compared compared =
            rps_losses_compare(check->runs, check->times, check->tolerance);
    int code = RPS_TOOL_OK;

    if (check->json) {
        code = rps_tool_print_json(to_json(check, &compared));
    } else {
        print_text(check, &compared);
    }
    /* the verdict is out, whatever becomes of the file */
    if (code == RPS_TOOL_OK && check->csv != NULL && rps_tool_flush()) {
        code = write_csv(check);
    }
    if (code == RPS_TOOL_OK && !is_fixed(check, &compared)) {
        code = RPS_TOOL_DIFFERS;
    }
    return code;
}
