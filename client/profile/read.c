/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's events have names of its own for what they are: "cpu_op",
 * "kernel", "user_annotation" and more, or none at all (without Kineto), and
 * then the name of an event has to tell.
 */
#include "client/profile/read.h"

#include "base/json.h"
#include "client/profile/json_stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_BYTES     256u /* longer ones are cut */
#define TRACK_BYTES    128u
#define PROGRESS_EVERY 4096u /* events */
#define BEGIN_US_MAX   1e16  /* PyTorch counts from 1970 on; in ns: 64 bits */
#define LENGTH_US_MAX  1e14

struct reading {
    struct rps_json_stream stream;
    struct rps_totals *totals;
    struct rps_trace_info *info;
    const char *prefix;
    rps_trace_progress_fn progress;
    void *context;
    uint64_t total;
    uint64_t events;
    bool has_kernels; /* of a device */
};

/* --- what an event is ---------------------------------------------------- */

static const struct {
    const char *category;
    enum rps_profile_class class;
} categories[] = {
        {"operator", RPS_PROFILE_OPERATOR},
        {"copy", RPS_PROFILE_COPY},
        {"communication", RPS_PROFILE_COMMUNICATION},
        {"scheduling", RPS_PROFILE_SCHEDULING},
        {"cpu_op", RPS_PROFILE_OPERATOR},
        {"Operator", RPS_PROFILE_OPERATOR},
        {"kernel", RPS_PROFILE_OPERATOR},
        {"Kernel", RPS_PROFILE_OPERATOR},
        {"gpu_memcpy", RPS_PROFILE_COPY},
        {"gpu_memset", RPS_PROFILE_COPY},
        {"Memcpy", RPS_PROFILE_COPY},
        {"Memset", RPS_PROFILE_COPY},
};

static bool
begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool
is_communication(const char *name)
{
    static const char *const marks[] = {
            "nccl", "c10d::", "gloo:", "mpi:", "hccl", "record_param_comms"};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (strstr(name, marks[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* "AddmmBackward0", "aten::linear" */
static bool
is_operator_name(const char *name)
{
    return strstr(name, "::") != NULL || strstr(name, "Backward") != NULL;
}

static enum rps_profile_class
class_of(const char *category, const char *name)
{
    if (is_communication(name) || is_communication(category)) {
        return RPS_PROFILE_COMMUNICATION;
    }
    for (size_t i = 0; i < sizeof(categories) / sizeof(categories[0]); i++) {
        if (strcmp(category, categories[i].category) == 0) {
            return categories[i].class;
        }
    }
    return category[0] == '\0' && is_operator_name(name)
                   ? RPS_PROFILE_OPERATOR
                   : RPS_PROFILE_SCHEDULING;
}

static bool
is_step(const char *category, const char *name)
{
    return strcmp(category, "step") == 0 ||
           (begins_with(name, "ProfilerStep#") &&
                   !begins_with(category, "gpu_"));
}

/* Around everything, or a copy of another span on the device's track. */
static bool
is_frame(const char *category)
{
    return strcmp(category, "Trace") == 0 ||
           strcmp(category, "gpu_user_annotation") == 0;
}

/* --- an event ------------------------------------------------------------ */

/* It may end on a terminal. */
static void
copy_text(char *to, size_t bytes, const char *from)
{
    size_t n = 0;

    for (; from != NULL && from[n] != '\0' && n + 1 < bytes; n++) {
        const unsigned char c = (unsigned char)from[n];

        to[n] = c < 0x20 || c == 0x7f ? '?' : from[n];
    }
    to[n] = '\0';
}

static const char *
text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* Numbers of PyTorch's may be texts. */
static void
add_id(char track[TRACK_BYTES], const json_t *id)
{
    const size_t n = strlen(track);

    if (json_is_string(id)) {
        copy_text(track + n, TRACK_BYTES - n, json_string_value(id));
    } else {
        (void)snprintf(track + n, TRACK_BYTES - n, "%lld",
                (long long)json_integer_value(id));
    }
}

static bool
ns_of(const json_t *event, const char *name, double us_max, uint64_t *ns_out)
{
    const json_t *value = json_object_get(event, name);
    const double us = json_number_value(value);

    if (!json_is_number(value) || !(us >= 0.0) || us > us_max) {
        return false;
    }
    *ns_out = json_is_integer(value)
                      ? (uint64_t)json_integer_value(value) * 1000u
                      : (uint64_t)llround(us * 1000.0);
    return true;
}

/* The strings of a span that is read. */
struct words {
    char name[NAME_BYTES];
    char type[NAME_BYTES];
    char holds[NAME_BYTES];
    char track[TRACK_BYTES];
};

static void
fill_args(const json_t *args, bool is_ours, struct words *words,
        struct rps_profile_span *span)
{
    if (is_ours && text_of(args, "type") != NULL) {
        copy_text(words->type, sizeof(words->type), text_of(args, "type"));
    }
    copy_text(words->holds, sizeof(words->holds), text_of(args, "holds"));
    (void)rps_json_count(json_object_get(args, "bytes"), &span->bytes);
    (void)rps_json_count(json_object_get(args, "flops"), &span->flops);
}

static rps_status
add_span(struct reading *reading, const json_t *event, struct words *words,
        const char *category, struct rps_profile_span *span)
{
    span->class = class_of(category, words->name);
    copy_text(words->type, sizeof(words->type),
            category[0] != '\0' ? category : "event");
    copy_text(words->track, sizeof(words->track), reading->prefix);
    add_id(words->track, json_object_get(event, "pid"));
    (void)strncat(
            words->track, "/", sizeof(words->track) - strlen(words->track) - 1);
    add_id(words->track, json_object_get(event, "tid"));
    fill_args(json_object_get(event, "args"), reading->info->is_ours, words,
            span);
    span->type = words->type;
    span->name = words->name;
    span->holds = words->holds;
    span->track = words->track;
    reading->info->spans++;
    reading->has_kernels = reading->has_kernels ||
                           strcmp(category, "kernel") == 0 ||
                           strcmp(category, "Kernel") == 0;
    return rps_totals_add(reading->totals, span);
}

static rps_status
limit_words(const struct reading *reading, rps_status status,
        struct rps_error *error)
{
    return status != RPS_E_LIMIT
                   ? rps_fail(error, status, "%s: no memory",
                             reading->stream.path)
                   : rps_json_stream_fail(&reading->stream, status, error,
                             "more than %u spans, or %u kinds of them: profile "
                             "fewer steps",
                             RPS_TOTALS_SPANS_MAX, RPS_TOTALS_KINDS_MAX);
}

/* One with a begin and a duration; others are passed over. */
static rps_status
take_complete(
        struct reading *reading, const json_t *event, struct rps_error *error)
{
    struct rps_profile_span span = {.start_ns = 0};
    struct words words = {.name = ""};
    char category[NAME_BYTES];
    uint64_t ns = 0;
    rps_status status;

    copy_text(category, sizeof(category), text_of(event, "cat"));
    copy_text(words.name, sizeof(words.name), text_of(event, "name"));
    if (is_frame(category)) {
        return RPS_OK;
    }
    if (words.name[0] == '\0' ||
            !ns_of(event, "ts", BEGIN_US_MAX, &span.start_ns) ||
            !ns_of(event, "dur", LENGTH_US_MAX, &ns)) {
        return rps_json_stream_fail(&reading->stream, RPS_E_CORRUPT, error,
                "the event before it needs a name, and ts and dur that are "
                "numbers from 0 on");
    }
    span.end_ns = span.start_ns + ns;
    reading->info->is_torch = reading->info->is_torch ||
                              begins_with(words.name, "aten::") ||
                              begins_with(words.name, "ProfilerStep#");
    status = is_step(category, words.name)
                     ? rps_totals_step(reading->totals, ns)
                     : add_span(reading, event, &words, category, &span);
    return status == RPS_OK ? RPS_OK : limit_words(reading, status, error);
}

static void
show_progress(struct reading *reading)
{
    if (reading->progress != NULL && ++reading->events % PROGRESS_EVERY == 0) {
        reading->progress(
                reading->context, reading->stream.offset, reading->total);
    }
}

/* --- the file ------------------------------------------------------------ */

static rps_status
take_event(struct reading *reading, struct rps_error *error)
{
    json_t *event;
    const char *phase;
    rps_status status = rps_json_stream_value(&reading->stream, &event, error);

    if (status != RPS_OK) {
        return status;
    }
    phase = text_of(event, "ph");
    if (!json_is_object(event) || phase == NULL) {
        status = rps_json_stream_fail(&reading->stream, RPS_E_CORRUPT, error,
                "the value before it is no event: an object with \"ph\"");
    } else if (strcmp(phase, "X") == 0) {
        status = take_complete(reading, event, error);
    }
    json_decref(event);
    show_progress(reading);
    return status;
}

static rps_status
take_events(struct reading *reading, struct rps_error *error)
{
    rps_status status = rps_json_stream_take(&reading->stream, '[', error);
    bool more = status == RPS_OK;

    for (bool first = true; status == RPS_OK && more; first = false) {
        status = rps_json_stream_more(
                &reading->stream, ']', first, &more, error);
        if (status == RPS_OK && more) {
            status = take_event(reading, error);
        }
    }
    return status;
}

static rps_status
take_other(struct reading *reading, struct rps_error *error)
{
    json_t *other;
    const char *program;
    rps_status status = rps_json_stream_value(&reading->stream, &other, error);

    if (status == RPS_OK) {
        program = text_of(other, "program");
        reading->info->is_ours =
                program != NULL && strcmp(program, "recps") == 0;
        (void)rps_json_count(
                json_object_get(other, "dropped"), &reading->info->dropped);
    }
    json_decref(other);
    return status;
}

static rps_status
take_member(struct reading *reading, bool *has_events, struct rps_error *error)
{
    struct rps_json_stream *stream = &reading->stream;
    const char *name;
    json_t *key;
    rps_status status = rps_json_stream_value(stream, &key, error);

    if (status != RPS_OK) {
        return status;
    }
    name = json_string_value(key);
    status = name == NULL ? rps_json_stream_fail(stream, RPS_E_CORRUPT, error,
                                    "no name before it")
                          : rps_json_stream_take(stream, ':', error);
    if (status != RPS_OK) {
        /* said */
    } else if (strcmp(name, "traceEvents") == 0) {
        *has_events = true;
        status = take_events(reading, error);
    } else if (strcmp(name, "otherData") == 0) {
        status = take_other(reading, error);
    } else {
        status = rps_json_stream_skip(stream, error);
    }
    json_decref(key);
    return status;
}

static rps_status
take_object(struct reading *reading, struct rps_error *error)
{
    rps_status status = rps_json_stream_take(&reading->stream, '{', error);
    bool more = status == RPS_OK, has_events = false;

    for (bool first = true; status == RPS_OK && more; first = false) {
        status = rps_json_stream_more(
                &reading->stream, '}', first, &more, error);
        if (status == RPS_OK && more) {
            status = take_member(reading, &has_events, error);
        }
    }
    if (status == RPS_OK && !has_events) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s is no trace: it has no \"traceEvents\"",
                reading->stream.path);
    }
    return status;
}

static rps_status
take_file(struct reading *reading, struct rps_error *error)
{
    int byte = -1;
    rps_status status = rps_json_stream_peek(&reading->stream, &byte, error);

    if (status != RPS_OK) {
        return status;
    }
    if (byte != '[' && byte != '{') {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s is no trace: it begins with neither '{' nor '['",
                reading->stream.path);
    }
    status = byte == '[' ? take_events(reading, error)
                         : take_object(reading, error);
    if (status == RPS_OK) {
        status = rps_json_stream_peek(&reading->stream, &byte, error);
    }
    return status == RPS_OK && byte >= 0
                   ? rps_json_stream_fail(&reading->stream, RPS_E_CORRUPT,
                             error, "something follows the trace")
                   : status;
}

rps_status
rps_trace_read(const char *path, const char *prefix, struct rps_totals *totals,
        struct rps_trace_info *info, rps_trace_progress_fn progress,
        void *context, struct rps_error *error)
{
    struct reading reading = {.totals = totals,
            .info = info,
            .prefix = prefix,
            .progress = progress,
            .context = context};
    struct stat file;
    rps_status status;

    *info = (struct rps_trace_info){.spans = 0};
    reading.total = stat(path, &file) == 0 ? (uint64_t)file.st_size : 0;
    status = rps_json_stream_open(&reading.stream, path, error);
    if (status == RPS_OK) {
        status = take_file(&reading, error);
        rps_json_stream_close(&reading.stream);
    }
    if (reading.has_kernels) { /* the host's part only starts them */
        rps_totals_reclass(totals, "cpu_op", RPS_PROFILE_SCHEDULING);
        rps_totals_reclass(totals, "Operator", RPS_PROFILE_SCHEDULING);
    }
    return status;
}
