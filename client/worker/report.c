/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns standard output of a run and the JSON log; the event file is
 * summary.c's. Everything is written a whole line at a time.
 */
#include "client/worker/report.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "client/worker/summary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIVE_INTERVAL_MS 50u /* redraws of the live line */

struct rps_report {
    struct rps_report_options options;
    char *json_path;
    int json_fd; /* -1: no log */
    struct rps_summary *summary;
    bool live;       /* one line, redrawn, in place of lines */
    bool line_drawn; /* the live line stands on the terminal */
    uint64_t drawn_ms;
    uint64_t start_ns;
    uint64_t last_ns; /* of the last step */
    uint64_t samples;
    uint64_t first_step; /* of this run; 0: none yet */
};

static bool
wants_live_line(void)
{
    const char *set = getenv("RECPS_PROGRESS");

    if (set != NULL && set[0] != '\0') {
        return strcmp(set, "0") != 0;
    }
    return isatty(STDOUT_FILENO) == 1;
}

static rps_status
open_json(struct rps_report *report, struct rps_error *error)
{
    report->json_path = strdup(report->options.json_log);
    if (report->json_path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "report: no memory");
    }
    report->json_fd = open(report->json_path,
            O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
                    (report->options.goes_on ? 0 : O_TRUNC),
            0640);
    if (report->json_fd < 0) {
        return rps_fail(error, RPS_E_IO, "--json-log: %s: %s",
                report->json_path, strerror(errno));
    }
    return RPS_OK;
}

rps_status
rps_report_create(struct rps_report **report_out,
        const struct rps_report_options *options, struct rps_error *error)
{
    struct rps_report *report = calloc(1, sizeof(*report));
    rps_status status = RPS_OK;

    *report_out = NULL;
    if (report == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "report: no memory");
    }
    report->options = *options;
    report->json_fd = -1;
    report->start_ns = rps_clock_ns();
    report->last_ns = report->start_ns;
    report->live = !options->quiet && wants_live_line();
    if (!options->quiet && options->json_log != NULL) {
        status = open_json(report, error);
    }
    if (status == RPS_OK && !options->quiet && options->summary_dir != NULL) {
        status = rps_summary_create(
                &report->summary, options->summary_dir, error);
    }
    if (status != RPS_OK) {
        rps_report_destroy(report);
        return status;
    }
    *report_out = report;
    return RPS_OK;
}

void
rps_report_start(struct rps_report *report)
{
    report->start_ns = rps_clock_ns();
    report->last_ns = report->start_ns;
    report->samples = 0;
}

double
rps_report_samples_per_second(const struct rps_report *report)
{
    uint64_t ns = report->last_ns - report->start_ns;

    return ns == 0 ? 0.0 : (double)report->samples * 1e9 / (double)ns;
}

static void
clear_live_line(struct rps_report *report)
{
    if (report->line_drawn) {
        fputs("\r\033[K", stdout);
        report->line_drawn = false;
    }
}

static void
print_line(struct rps_report *report, const char *line)
{
    clear_live_line(report);
    fprintf(stdout, "%s\n", line);
    fflush(stdout);
}

void
rps_report_note(struct rps_report *report, const char *line)
{
    if (!report->options.quiet) {
        print_line(report, line);
    }
}

/* A number as JSON has it: what is not finite is null. */
static void
add_number(struct rps_text *text, const char *name, bool there, double value)
{
    if (there && isfinite(value)) {
        rps_text_add(text, ", \"%s\": %.9g", name, value);
    } else {
        rps_text_add(text, ", \"%s\": null", name);
    }
}

/* Write and free. One write a line, so that a reader sees whole lines. */
static rps_status
write_json(struct rps_report *report, struct rps_text *text,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    rps_text_add(text, "}\n");
    if (text->failed) {
        status = rps_fail(error, RPS_E_NOMEM, "--json-log: no memory");
    } else {
        status = rps_fd_write_all(report->json_fd, text->bytes, text->length,
                report->json_path, error);
    }
    rps_text_finish(text);
    return status;
}

static void
format_time_left(const struct rps_report *report, uint64_t step, char *text,
        size_t bytes)
{
    uint64_t done = step - report->first_step + 1;
    double seconds = (double)(report->last_ns - report->start_ns) * 1e-9;
    uint64_t left;

    if (report->options.steps_total < step) {
        (void)snprintf(text, bytes, "-:--");
        return;
    }
    left = (uint64_t)(seconds / (double)done *
                      (double)(report->options.steps_total - step));
    if (left >= 3600) {
        (void)snprintf(text, bytes, "%" PRIu64 ":%02u:%02u", left / 3600,
                (unsigned)(left / 60 % 60), (unsigned)(left % 60));
    } else {
        (void)snprintf(text, bytes, "%u:%02u", (unsigned)(left / 60),
                (unsigned)(left % 60));
    }
}

static void
draw_live_line(struct rps_report *report, const struct rps_report_step *step)
{
    uint64_t now = rps_clock_ms();
    char left[32];

    if (now - report->drawn_ms < LIVE_INTERVAL_MS &&
            step->step != report->options.steps_total) {
        return;
    }
    report->drawn_ms = now;
    format_time_left(report, step->step, left, sizeof(left));
    fprintf(stdout, "\r\033[Kstep %" PRIu64, step->step);
    if (report->options.steps_total > 0) {
        fprintf(stdout, "/%" PRIu64, report->options.steps_total);
    }
    fprintf(stdout, "  loss %.6f  %.0f samples/s  %s left", step->loss,
            rps_report_samples_per_second(report), left);
    fflush(stdout);
    report->line_drawn = true;
}

static void
print_step(struct rps_report *report, const struct rps_report_step *step)
{
    fprintf(stdout, "step %" PRIu64 " loss %.9g samples/s %.0f\n", step->step,
            step->loss, rps_report_samples_per_second(report));
    fflush(stdout);
}

/* "table_lr": {"user_table": 0.05, ...}; every rate is finite. */
static void
add_rates(struct rps_text *text, const struct rps_report_step *step)
{
    for (uint32_t i = 0; i < step->rate_count; i++) {
        rps_text_add(text, "%s\"%s\": %.9g",
                i == 0 ? ", \"table_lr\": {" : ", ", step->rates[i].table,
                step->rates[i].rate);
    }
    if (step->rate_count > 0) {
        rps_text_add(text, "}");
    }
}

/* 17 digits: a power of two, exactly */
static void
add_loss_scale(struct rps_text *text, const struct rps_report_step *step)
{
    if (step->loss_scale > 0.0) {
        rps_text_add(text,
                ", \"loss_scale\": %.17g, \"skipped\": %s, "
                "\"skipped_steps\": %" PRIu64,
                step->loss_scale, step->skipped ? "true" : "false",
                step->skipped_steps);
    }
}

/* "loss_bits": "3fe62e42fefa39ef", the double in hexadecimal. */
static void
add_loss_bits(struct rps_text *text, double loss)
{
    uint64_t bits;

    memcpy(&bits, &loss, sizeof(bits));
    rps_text_add(text, ", \"loss_bits\": \"%016" PRIx64 "\"", bits);
}

static rps_status
log_step(struct rps_report *report, const struct rps_report_step *step,
        struct rps_error *error)
{
    struct rps_text text = {0};

    rps_text_add(&text, "{\"step\": %" PRIu64, step->step);
    if (step->epoch > 0) {
        rps_text_add(&text, ", \"epoch\": %" PRIu32, step->epoch);
    }
    add_number(&text, "loss", true, step->loss);
    add_number(&text, "sparse_lr", true, step->sparse_lr);
    add_number(&text, "dense_lr", true, step->dense_lr);
    add_rates(&text, step);
    add_loss_scale(&text, step);
    if (step->counted > 0) {
        rps_text_add(&text, ", \"counted\": %" PRIu32, step->counted);
    }
    rps_text_add(&text, ", \"round_trips\": %" PRIu64, step->round_trips);
    if (report->options.loss_bits) {
        add_loss_bits(&text, step->loss);
    }
    return write_json(report, &text, error);
}

static rps_status
summarize_step(struct rps_report *report, const struct rps_report_step *step,
        struct rps_error *error)
{
    const struct rps_scalar scalars[] = {
            {"loss", step->loss},
            {"learning_rate/sparse", step->sparse_lr},
            {"learning_rate/dense", step->dense_lr},
            {"samples_per_second", rps_report_samples_per_second(report)},
            {"loss_scale", step->loss_scale},
    };
    const size_t count = sizeof(scalars) / sizeof(scalars[0]);

    return rps_summary_add(report->summary, step->step, scalars,
            step->loss_scale > 0.0 ? count : count - 1, error);
}

rps_status
rps_report_step(struct rps_report *report, const struct rps_report_step *step,
        struct rps_error *error)
{
    uint64_t every = report->options.log_every;
    rps_status status = RPS_OK;

    report->last_ns = rps_clock_ns();
    report->samples += step->samples;
    if (report->first_step == 0) {
        report->first_step = step->step;
    }
    if (report->options.quiet || (every > 1 && step->step % every != 0)) {
        return RPS_OK;
    }
    if (report->live) {
        draw_live_line(report, step);
    } else {
        print_step(report, step);
    }
    if (report->json_fd >= 0) {
        status = log_step(report, step, error);
    }
    if (status == RPS_OK && report->summary != NULL) {
        status = summarize_step(report, step, error);
    }
    return status;
}

static rps_status
log_back(struct rps_report *report, const struct rps_report_back *back,
        struct rps_error *error)
{
    json_t *object =
            json_pack("{s:s, s:I, s:I, s:I, s:s}", "event", "rolled_back",
                    "from", (json_int_t)back->from, "to", (json_int_t)back->to,
                    "epoch", (json_int_t)back->epoch, "reason", back->reason);
    char *line =
            object != NULL ? json_dumps(object, JSON_PRESERVE_ORDER) : NULL;
    struct rps_text text = {0};

    json_decref(object);
    if (line == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "--json-log: no memory");
    }
    line[strlen(line) - 1] = '\0'; /* write_json() ends it */
    rps_text_add(&text, "%s", line);
    free(line);
    return write_json(report, &text, error);
}

rps_status
rps_report_back(struct rps_report *report, const struct rps_report_back *back,
        struct rps_error *error)
{
    char line[RPS_ERROR_BYTES];
    rps_status status = RPS_OK;

    report->first_step = 0;
    if (report->options.quiet) {
        return RPS_OK;
    }
    (void)snprintf(line, sizeof(line), RPS_REPORT_BACK_WORDS, back->from,
            back->to, back->reason, back->epoch);
    print_line(report, line);
    if (report->json_fd >= 0) {
        status = log_back(report, back, error);
    }
    return status == RPS_OK && report->summary != NULL
                   ? rps_summary_restart(report->summary, back->to + 1, error)
                   : status;
}

/* " auc 0.7 log_loss 0.5", or what there is of it. */
static void
add_result(struct rps_text *text, const struct rps_report_end *result)
{
    if (result->has_auc) {
        rps_text_add(text, " auc %.9g", result->auc);
    }
    if (result->has_log_loss) {
        rps_text_add(text, " log_loss %.9g", result->log_loss);
    }
}

/* Print and free. */
static void
print_text(struct rps_report *report, struct rps_text *text)
{
    if (!text->failed) {
        print_line(report, text->bytes);
    }
    rps_text_finish(text);
}

/* The evaluation's scalars; its numbers on stdout are the done line's. */
static rps_status
summarize_result(struct rps_report *report, const struct rps_report_end *end,
        struct rps_error *error)
{
    struct rps_scalar scalars[2];
    size_t count = 0;

    if (end->has_auc) {
        scalars[count++] = (struct rps_scalar){"auc", end->auc};
    }
    if (end->has_log_loss) {
        scalars[count++] = (struct rps_scalar){"log_loss", end->log_loss};
    }
    return report->summary == NULL || count == 0
                   ? RPS_OK
                   : rps_summary_add(report->summary, end->steps, scalars,
                             count, error);
}

/* "read 1.2 %, lookup 3.4 %": those that are not nothing. */
static void
add_stages(struct rps_text *text, const struct rps_report_stage *stages,
        uint32_t count)
{
    const char *comma = "";

    for (uint32_t i = 0; i < count; i++) {
        if (stages[i].share >= 0.0005) {
            rps_text_add(text, "%s%s %.1f %%", comma, stages[i].words,
                    stages[i].share * 100.0);
            comma = ", ";
        }
    }
}

/* Where the time went. */
static void
print_spent(struct rps_report *report, const struct rps_report_stages *spent)
{
    struct rps_text text = {0};
    char bytes[2][32];

    if (spent->count == 0) {
        return;
    }
    rps_text_add(&text, "pipeline depth %" PRIu32 " round trips a step %.3g: ",
            spent->depth, spent->round_trips);
    add_stages(&text, spent->stages, spent->count);
    if (spent->reader_count > 0) {
        rps_text_add(&text, "; beside it: ");
        add_stages(&text, spent->reader, spent->reader_count);
    }
    if (spent->sent_bytes > 0.0) {
        rps_text_add(&text, "; %s sent and %s received a step",
                rps_format_bytes((uint64_t)spent->sent_bytes, bytes[0]),
                rps_format_bytes((uint64_t)spent->received_bytes, bytes[1]));
    }
    print_text(report, &text);
}

static void
log_shares(struct rps_text *text, const char *name,
        const struct rps_report_stage *stages, uint32_t count)
{
    rps_text_add(text, ", \"%s\": {", name);
    for (uint32_t i = 0; i < count; i++) {
        rps_text_add(text, "%s\"%s\": %.4f", i == 0 ? "" : ", ", stages[i].name,
                stages[i].share);
    }
    rps_text_add(text, "}");
}

static void
log_spent(struct rps_text *text, const struct rps_report_stages *spent)
{
    if (spent->count > 0) {
        rps_text_add(text,
                ", \"pipeline_depth\": %" PRIu32
                ", \"round_trips_per_step\": %.4g",
                spent->depth, spent->round_trips);
        log_shares(text, "stages", spent->stages, spent->count);
        log_shares(text, "reader", spent->reader, spent->reader_count);
        if (spent->sent_bytes > 0.0) {
            rps_text_add(text,
                    ", \"sent_bytes_per_step\": %.0f"
                    ", \"received_bytes_per_step\": %.0f",
                    spent->sent_bytes, spent->received_bytes);
        }
    }
}

static double
share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

/* How many of the rows that batches asked for were there, and were not
 * fetched. */
static void
print_cache(struct rps_report *report, const struct rps_report_cache *cache)
{
    struct rps_text text = {0};

    rps_text_add(&text,
            "device cache: %" PRIu64 " rows, staleness %" PRIu64
            ": hit rate %.4f, %.4f not fetched; %" PRIu64 " asked for, %" PRIu64
            " moved, %" PRIu64 " without a place, %" PRIu64 " put out",
            cache->capacity, cache->staleness, share(cache->held, cache->asked),
            share(cache->fresh + cache->unchanged, cache->asked), cache->asked,
            cache->moved, cache->extra, cache->evicted);
    print_text(report, &text);
}

static void
log_cache(struct rps_text *text, const struct rps_report_cache *cache)
{
    rps_text_add(text,
            ", \"cache\": {\"capacity\": %" PRIu64 ", \"staleness\": %" PRIu64
            ", \"asked\": %" PRIu64 ", \"held\": %" PRIu64
            ", \"fresh\": %" PRIu64 ", \"unchanged\": %" PRIu64
            ", \"moved\": %" PRIu64 ", \"extra\": %" PRIu64
            ", \"evicted\": %" PRIu64 ", \"hit_rate\": %.6f}",
            cache->capacity, cache->staleness, cache->asked, cache->held,
            cache->fresh, cache->unchanged, cache->moved, cache->extra,
            cache->evicted, share(cache->held, cache->asked));
}

static void
print_npu(struct rps_report *report, const struct rps_report_npu *npu)
{
    struct rps_text text = {0};
    char bytes[4][32];

    if (!npu->there) {
        return;
    }
    rps_text_add(&text,
            "npu %" PRIu32 ": memory peak %s, reserved %s, input queue %s, of "
            "%s; %" PRIu64 " steps in %" PRIu64 " launches (loop %" PRIu64
            "), %" PRIu64 " compiled, %" PRIu64 " input copies, up to %" PRIu64
            " ahead",
            npu->id, rps_format_bytes(npu->allocated_peak_bytes, bytes[0]),
            rps_format_bytes(npu->reserved_peak_bytes, bytes[1]),
            rps_format_bytes(npu->queue_bytes, bytes[3]),
            rps_format_bytes(npu->capacity_bytes, bytes[2]), npu->steps,
            npu->launches, npu->loop_size, npu->compiles, npu->input_copies,
            npu->input_ahead);
    print_text(report, &text);
    if (npu->cache.capacity > 0) {
        print_cache(report, &npu->cache);
    }
}

static void
log_npu(struct rps_text *text, const struct rps_report_npu *npu)
{
    if (!npu->there) {
        return;
    }
    rps_text_add(text,
            ", \"npu\": {\"id\": %" PRIu32 ", \"capacity_bytes\": %" PRIu64
            ", \"allocated_peak_bytes\": %" PRIu64
            ", \"reserved_bytes\": %" PRIu64
            ", \"reserved_peak_bytes\": %" PRIu64
            ", \"reserved_first_bytes\": %" PRIu64
            ", \"reserved_train_bytes\": %" PRIu64 ", \"queue_bytes\": %" PRIu64
            ", \"launches\": %" PRIu64 ", \"steps\": %" PRIu64
            ", \"compiles\": %" PRIu64 ", \"input_copies\": %" PRIu64
            ", \"input_ahead\": %" PRIu64 ", \"loop_size\": %" PRIu64
            ", \"bytes_to_device\": %" PRIu64 ", \"bytes_to_host\": %" PRIu64,
            npu->id, npu->capacity_bytes, npu->allocated_peak_bytes,
            npu->reserved_bytes, npu->reserved_peak_bytes,
            npu->reserved_first_bytes, npu->reserved_train_bytes,
            npu->queue_bytes, npu->launches, npu->steps, npu->compiles,
            npu->input_copies, npu->input_ahead, npu->loop_size,
            npu->bytes_to_device, npu->bytes_to_host);
    if (npu->cache.capacity > 0) {
        log_cache(text, &npu->cache);
    }
    rps_text_add(text, "}");
}

static rps_status
log_done(struct rps_report *report, const struct rps_report_end *end,
        struct rps_error *error)
{
    struct rps_text text = {0};

    rps_text_add(&text, "{\"event\": \"done\"");
    add_number(&text, "auc", end->has_auc, end->auc);
    add_number(&text, "log_loss", end->has_log_loss, end->log_loss);
    add_number(&text, "final_loss", end->has_final_loss, end->final_loss);
    rps_text_add(&text, ", \"steps\": %" PRIu64, end->steps);
    add_number(&text, "samples_per_second", end->samples_per_second > 0.0,
            end->samples_per_second);
    log_spent(&text, &end->spent);
    log_npu(&text, &end->npu);
    return write_json(report, &text, error);
}

static rps_status
close_json(struct rps_report *report, struct rps_error *error)
{
    int fd = report->json_fd;

    report->json_fd = -1;
    if (fd >= 0 && close(fd) != 0) {
        return rps_fail(error, RPS_E_IO, "--json-log: %s: %s",
                report->json_path, strerror(errno));
    }
    return RPS_OK;
}

rps_status
rps_report_done(struct rps_report *report, const struct rps_report_end *end,
        struct rps_error *error)
{
    struct rps_summary *summary = report->summary;
    struct rps_text text = {0};
    rps_status status = RPS_OK;
    rps_status closed;

    if (report->options.quiet) {
        return RPS_OK;
    }
    print_spent(report, &end->spent);
    print_npu(report, &end->npu);
    rps_text_add(&text, "done steps %" PRIu64, end->steps);
    add_result(&text, end);
    if (end->has_final_loss) {
        rps_text_add(&text, " final_loss %.9g%s", end->final_loss,
                isfinite(end->final_loss) ? "" : " (training has failed)");
    }
    if (end->samples_per_second > 0.0) {
        rps_text_add(&text, " samples/s %.0f", end->samples_per_second);
    }
    print_text(report, &text);
    if (report->json_fd >= 0) {
        status = log_done(report, end, error);
    }
    if (status == RPS_OK) {
        status = summarize_result(report, end, error);
    }
    closed = close_json(report, status == RPS_OK ? error : NULL);
    status = status == RPS_OK ? closed : status;
    report->summary = NULL;
    closed = rps_summary_close(summary, status == RPS_OK ? error : NULL);
    return status == RPS_OK ? closed : status;
}

void
rps_report_destroy(struct rps_report *report)
{
    if (report == NULL) {
        return;
    }
    clear_live_line(report);
    (void)fflush(stdout);
    (void)close_json(report, NULL);
    (void)rps_summary_close(report->summary, NULL);
    free(report->json_path);
    free(report);
}
