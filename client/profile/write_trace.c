/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.json: the object form of Chrome's trace event format. A rank is a
 * process, a track a thread; steps have a track of their own, above all.
 */
#include "base/clock.h"
#include "client/profile/file.h"
#include "client/profile/totals.h"
#include "client/profile/write.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define TRACKS_MAX  256u
#define TRACK_STEPS 1u /* its number; the others follow */

struct tracks {
    const char *names[TRACKS_MAX]; /* borrowed from the records */
    uint32_t count;
};

struct trace {
    FILE *stream;
    uint32_t pid;
    uint64_t origin;
    struct tracks tracks;
    bool begun; /* a comma comes before the next event */
};

/* Those beyond the limit are drawn in the last one. */
static uint32_t
number_of_track(struct tracks *tracks, const char *name)
{
    for (uint32_t i = tracks->count; i-- > 0;) {
        if (tracks->names[i] == name || strcmp(tracks->names[i], name) == 0) {
            return TRACK_STEPS + 1 + i;
        }
    }
    if (tracks->count < TRACKS_MAX) {
        tracks->names[tracks->count++] = name;
    }
    return TRACK_STEPS + tracks->count;
}

static void
begin_event(struct trace *trace, const char *phase, const char *name)
{
    fputs(trace->begun ? ",\n" : "\n", trace->stream);
    trace->begun = true;
    fprintf(trace->stream, "{\"ph\": \"%s\", \"name\": ", phase);
    rps_profile_put_json(trace->stream, name);
    fprintf(trace->stream, ", \"pid\": %" PRIu32, trace->pid);
}

static void
put_label(
        struct trace *trace, const char *kind, uint32_t track, const char *name)
{
    begin_event(trace, "M", kind);
    fprintf(trace->stream,
            ", \"tid\": %" PRIu32 ", \"args\": {\"name\": ", track);
    rps_profile_put_json(trace->stream, name);
    fputs("}}", trace->stream);
}

static void
put_times(struct trace *trace, uint64_t start_ns, uint64_t end_ns)
{
    fputs(", \"ts\": ", trace->stream);
    rps_profile_put_us(trace->stream, start_ns - trace->origin);
    fputs(", \"dur\": ", trace->stream);
    rps_profile_put_us(trace->stream, end_ns - start_ns);
}

static void
put_text(struct trace *trace, const char *name, const char *text)
{
    if (text != NULL) {
        fprintf(trace->stream, ", \"%s\": ", name);
        rps_profile_put_json(trace->stream, text);
    }
}

static void
put_number(struct trace *trace, const char *name, uint64_t number)
{
    if (number > 0) {
        fprintf(trace->stream, ", \"%s\": %" PRIu64, name, number);
    }
}

static void
put_span(struct trace *trace, const struct rps_profile_span *span)
{
    begin_event(trace, "X", span->name != NULL ? span->name : span->type);
    fprintf(trace->stream, ", \"tid\": %" PRIu32 ", \"cat\": \"%s\"",
            number_of_track(
                    &trace->tracks, span->track != NULL ? span->track : "host"),
            rps_profile_class_name(span->class));
    put_times(trace, span->start_ns, span->end_ns);
    fputs(", \"args\": {\"type\": ", trace->stream);
    rps_profile_put_json(trace->stream, span->type);
    put_number(trace, "step", span->step);
    put_text(trace, "holds", span->holds);
    put_text(trace, "shapes", span->shapes);
    put_number(trace, "bytes", span->bytes);
    put_number(trace, "flops", span->flops);
    fputs("}}", trace->stream);
}

static void
put_figure(struct trace *trace, const struct rps_profile_record *record)
{
    begin_event(trace, "C", record->span.name);
    fputs(", \"tid\": 0, \"ts\": ", trace->stream);
    rps_profile_put_us(trace->stream, record->span.start_ns - trace->origin);
    fprintf(trace->stream, ", \"args\": {\"value\": %.15g}}", record->value);
}

static void
put_step(struct trace *trace, const struct rps_profile_step_span *step)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "step %" PRIu64, step->step);
    begin_event(trace, "X", name);
    fprintf(trace->stream, ", \"tid\": %u, \"cat\": \"step\"", TRACK_STEPS);
    put_times(trace, step->start_ns, step->end_ns);
    fprintf(trace->stream, ", \"args\": {\"step\": %" PRIu64 "}}", step->step);
}

/* The wall clock at ts 0, so that traces of several ranks can be laid side by
 * side. */
static uint64_t
unix_ns_of(uint64_t monotonic_ns)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec -
           (rps_clock_ns() - monotonic_ns);
}

static void
put_events(struct trace *trace, const struct rps_profile_options *options,
        const struct rps_profile_collected *collected)
{
    char process[48];

    (void)snprintf(process, sizeof(process), "rank %" PRIu32, options->rank);
    put_label(trace, "process_name", 0, process);
    put_label(trace, "thread_name", TRACK_STEPS, "steps");
    for (size_t i = 0; i < collected->step_count; i++) {
        put_step(trace, &collected->steps[i]);
    }
    for (size_t i = 0; i < collected->count; i++) {
        if (collected->records[i]->is_figure) {
            put_figure(trace, collected->records[i]);
        } else {
            put_span(trace, &collected->records[i]->span);
        }
    }
    for (uint32_t i = 0; i < trace->tracks.count; i++) {
        put_label(trace, "thread_name", TRACK_STEPS + 1 + i,
                trace->tracks.names[i]);
    }
}

rps_status
rps_profile_write_trace(const char *folder,
        const struct rps_profile_options *options,
        const struct rps_profile_collected *collected, struct rps_error *error)
{
    struct rps_profile_file file;
    struct trace trace = {
            .pid = options->rank, .origin = rps_profile_origin(collected)};
    rps_status status =
            rps_profile_file_open(&file, folder, "trace.json", error);

    if (status != RPS_OK) {
        return status;
    }
    trace.stream = file.stream;
    fprintf(file.stream,
            "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"program\": "
            "\"recps\", \"version\": \"" RPS_VERSION "\", \"rank\": %" PRIu32
            ", \"first_step\": %" PRIu64 ", \"last_step\": %" PRIu64
            ", \"dropped\": %" PRIu64 ", \"begun_unix_ns\": \"%" PRIu64
            "\"},\n\"traceEvents\": [",
            options->rank, options->first_step, options->last_step,
            collected->dropped, unix_ns_of(trace.origin));
    put_events(&trace, options, collected);
    fputs("\n]}\n", file.stream);
    return rps_profile_file_close(&file, error);
}
