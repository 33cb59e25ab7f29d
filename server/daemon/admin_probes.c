/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what "live", "ready" and "started" mean. None of them looks at a peer:
 * servers that wait for each other's readiness wait for ever.
 */
#include "base/clock.h"
#include "base/process.h"
#include "server/daemon/admin_impl.h"

#include <inttypes.h>

/* Above this share of the control group's limit the next row may be the one
 * for which the kernel kills us. */
#define MEMORY_SHARE_MAX 0.97

/** Collects checks; the first that fails is the reason. */
struct checks {
    struct rps_text *text; /* a line a check, or NULL */
    struct rps_error *why; /* or NULL */
    bool failed;
};

static void check(struct checks *checks, bool good, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void
check(struct checks *checks, bool good, const char *format, ...)
{
    char words[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    if (checks->text != NULL) {
        rps_text_add(checks->text, "[%c] %s\n", good ? '+' : '-', words);
    }
    if (!good && !checks->failed && checks->why != NULL) {
        (void)rps_fail(checks->why, RPS_E_RETRY_LATER, "%s", words);
    }
    checks->failed |= !good;
}

static const char *
busy_words(enum rps_busy busy)
{
    return busy == RPS_BUSY_SAVE ? "a checkpoint is being written"
                                 : "a checkpoint is being restored";
}

/*
 * A loop that stands in a request is dead, unless a checkpoint is in hand:
 * then a push waits for the disk, and killing the server would lose both.
 */
static void
check_live(const struct rps_view *view, struct checks *checks)
{
    const uint64_t now = rps_clock_ns();
    const double limit = view->options->live_timeout;
    uint64_t busy_ms = 0;
    const enum rps_busy busy = rps_service_busy(view->service, &busy_ms);

    if (rps_view_stage(view) == RPS_STAGE_STARTING) {
        check(checks, true, "loops: not started yet");
        return;
    }
    for (uint32_t i = 0; i < view->loop_count; i++) {
        const uint64_t tick =
                rps_stat_get(&rps_loop_stats(view->loops[i])->tick_ns);
        const double age = now > tick ? (double)(now - tick) / 1e9 : 0;

        if (age > limit && busy != RPS_BUSY_NOT) {
            check(checks, true,
                    "loop %" PRIu32 ": turned %.1f s ago; %s since %.1f s", i,
                    age, busy_words(busy), (double)busy_ms / 1e3);
        } else {
            check(checks, age <= limit,
                    "loop %" PRIu32 ": turned %.1f s ago (live_timeout %g s)",
                    i, age, limit);
        }
    }
}

static void
check_memory(const struct rps_view *view, struct checks *checks)
{
    uint64_t resident;

    if (view->memory_max == 0) {
        check(checks, true, "memory: no limit of a control group");
        return;
    }
    resident = rps_process_resident();
    check(checks,
            (double)resident <= (double)view->memory_max * MEMORY_SHARE_MAX,
            "memory: %" PRIu64
            " bytes resident, the control group has %" PRIu64,
            resident, view->memory_max);
}

static void
check_started(const struct rps_view *view, struct checks *checks)
{
    uint64_t busy_ms = 0;
    const enum rps_busy busy = rps_service_busy(view->service, &busy_ms);

    check(checks, rps_view_stage(view) != RPS_STAGE_STARTING, "listening: %s",
            rps_view_stage(view) != RPS_STAGE_STARTING
                    ? view->listening
                    : "waiting for the port");
    if (busy == RPS_BUSY_RESTORE) {
        uint64_t rows, total;

        rps_service_restore_progress(view->service, &rows, &total);
        check(checks, false,
                "restore: %s since %.1f s: %" PRIu64 " of %" PRIu64
                " rows (%.0f %%)",
                busy_words(busy), (double)busy_ms / 1e3, rows, total,
                total > 0 ? 100.0 * (double)rows / (double)total : 0.0);
    } else {
        check(checks, true, "restore: none in hand");
    }
}

static void
check_serving(const struct rps_view *view, struct checks *checks)
{
    struct rps_serving_figures serving;

    rps_service_serving(view->service, &serving);
    if (serving.holds) {
        check(checks, true, "serving: step %" PRIu64, serving.step);
    } else if (serving.is_serving) {
        check(checks, false, "serving: waiting for the first checkpoint in %s",
                view->options->serve);
    }
}

static void
check_ready(const struct rps_view *view, struct checks *checks)
{
    const char *stop = atomic_load(&view->stop);

    check_started(view, checks);
    check(checks, rps_view_stage(view) != RPS_STAGE_DRAINING, "%s%s",
            rps_view_stage(view) != RPS_STAGE_DRAINING ? "not told to stop"
                                                       : "draining: ",
            rps_view_stage(view) == RPS_STAGE_DRAINING && stop != NULL ? stop
                                                                       : "");
    check_serving(view, checks);
    check_memory(view, checks);
}

bool
rps_is_live(const struct rps_view *view, struct rps_error *why)
{
    struct checks checks = {.why = why};

    check_live(view, &checks);
    return !checks.failed;
}

bool
rps_is_ready(const struct rps_view *view, struct rps_error *why)
{
    struct checks checks = {.why = why};

    check_ready(view, &checks);
    return !checks.failed;
}

static void
answer(const struct rps_admin_request *request, struct rps_http_answer *answer,
        void (*ask)(const struct rps_view *view, struct checks *checks),
        int failed_code)
{
    struct rps_error why = {.text = ""};
    struct checks checks = {
            .text = request->verbose ? &answer->body : NULL, .why = &why};

    ask(request->view, &checks);
    answer->code = checks.failed ? failed_code : 200;
    rps_text_add(&answer->body, "%s\n",
            !checks.failed     ? "ok"
            : request->verbose ? "failed"
                               : why.text);
}

void
rps_admin_livez(
        const struct rps_admin_request *request, struct rps_http_answer *out)
{
    answer(request, out, check_live, 500);
}

void
rps_admin_readyz(
        const struct rps_admin_request *request, struct rps_http_answer *out)
{
    answer(request, out, check_ready, 503);
}

void
rps_admin_startupz(
        const struct rps_admin_request *request, struct rps_http_answer *out)
{
    answer(request, out, check_started, 503);
}
