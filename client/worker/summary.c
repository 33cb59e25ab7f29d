/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/summary.h"

#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVENT_BYTES_MAX 2048u
#define NAME_TRIES_MAX  100u
#define SESSION_START   1u /* SessionLog.START */

/* Protocol buffers: tag = field number << 3 | wire type. */
enum wire_type {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
};

/* Field numbers of tensorflow.Event, SessionLog, Summary and Summary.Value. */
enum field_number {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_STATUS = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2
};

struct rps_summary {
    int fd;
    char *path;
};

/* Bytes in the making; the callers' limits keep length <= EVENT_BYTES_MAX. */
struct message {
    uint8_t bytes[EVENT_BYTES_MAX];
    size_t length;
};

uint32_t
rps_crc32c(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint32_t crc = UINT32_MAX;
    size_t i;
    int bit;

    for (i = 0; i < length; i++) {
        crc ^= at[i];
        for (bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (UINT32_C(0x82f63b78) & -(crc & 1));
        }
    }
    return ~crc;
}

uint32_t
rps_crc32c_masked(const void *bytes, size_t length)
{
    uint32_t crc = rps_crc32c(bytes, length);

    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void
put_little(struct message *message, uint64_t value, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        message->bytes[message->length++] = (uint8_t)(value >> (8 * i));
    }
}

static void
put_varint(struct message *message, uint64_t value)
{
    while (value >= 0x80) {
        message->bytes[message->length++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    message->bytes[message->length++] = (uint8_t)value;
}

static void
put_tag(struct message *message, enum field_number field, enum wire_type type)
{
    put_varint(message, (uint64_t)field << 3 | (uint64_t)type);
}

static void
put_bytes(struct message *message, enum field_number field, const void *bytes,
        size_t length)
{
    put_tag(message, field, WIRE_BYTES);
    put_varint(message, length);
    memcpy(message->bytes + message->length, bytes, length);
    message->length += length;
}

static void
put_wall_time(struct message *message)
{
    struct timespec now;
    double seconds;
    uint64_t bits;

    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof(bits));
    put_tag(message, EVENT_WALL_TIME, WIRE_64);
    put_little(message, bits, sizeof(bits));
}

static void
put_scalar(struct message *summary, const struct rps_scalar *scalar)
{
    struct message value = {.length = 0};
    float single = (float)scalar->value;
    uint32_t bits;

    memcpy(&bits, &single, sizeof(bits));
    put_bytes(&value, VALUE_TAG, scalar->tag,
            strnlen(scalar->tag, RPS_SUMMARY_TAG_BYTES_MAX));
    put_tag(&value, VALUE_SIMPLE, WIRE_32);
    put_little(&value, bits, sizeof(bits));
    put_bytes(summary, SUMMARY_VALUE, value.bytes, value.length);
}

/* A frame is written by one write: a reader sees whole events. */
static rps_status
write_event(struct rps_summary *summary, const struct message *event,
        struct rps_error *error)
{
    struct message frame = {.length = 0};

    put_little(&frame, event->length, 8);
    put_little(&frame, rps_crc32c_masked(frame.bytes, 8), 4);
    memcpy(frame.bytes + frame.length, event->bytes, event->length);
    frame.length += event->length;
    put_little(&frame, rps_crc32c_masked(event->bytes, event->length), 4);
    return rps_fd_write_all(
            summary->fd, frame.bytes, frame.length, summary->path, error);
}

/* A second run in the same second takes the next name. */
static rps_status
open_file(struct rps_summary *summary, const char *folder,
        struct rps_error *error)
{
    char host[256] = "localhost";
    long long seconds = (long long)time(NULL);
    unsigned i;

    (void)gethostname(host, sizeof(host) - 1);
    for (i = 0; i < NAME_TRIES_MAX && summary->fd < 0; i++) {
        free(summary->path);
        summary->path = rps_format("%s/events.out.tfevents.%lld.%s", folder,
                seconds + (long long)i, host);
        if (summary->path == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "summaries: no memory");
        }
        summary->fd = open(summary->path,
                O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0640);
        if (summary->fd < 0 && errno != EEXIST) {
            break;
        }
    }
    if (summary->fd < 0) {
        return rps_fail(error, RPS_E_IO, "summaries: %s: %s", summary->path,
                strerror(errno));
    }
    return RPS_OK;
}

rps_status
rps_summary_create(struct rps_summary **summary_out, const char *folder,
        struct rps_error *error)
{
    static const char version[] = "brain.Event:2";
    struct message event = {.length = 0};
    struct rps_summary *summary;
    rps_status status = rps_dir_make(folder, error);

    *summary_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    summary = calloc(1, sizeof(*summary));
    if (summary == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "summaries: no memory");
    }
    summary->fd = -1;
    status = open_file(summary, folder, error);
    if (status == RPS_OK) {
        put_wall_time(&event);
        put_bytes(&event, EVENT_FILE_VERSION, version, sizeof(version) - 1);
        status = write_event(summary, &event, error);
    }
    if (status != RPS_OK) {
        (void)rps_summary_close(summary, NULL);
        return status;
    }
    *summary_out = summary;
    return RPS_OK;
}

rps_status
rps_summary_add(struct rps_summary *summary, uint64_t step,
        const struct rps_scalar *scalars, size_t count, struct rps_error *error)
{
    struct message values = {.length = 0};
    struct message event = {.length = 0};
    size_t i;

    if (count > RPS_SUMMARY_SCALARS_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "summaries: %zu scalars in an event, at most %u", count,
                RPS_SUMMARY_SCALARS_MAX);
    }
    for (i = 0; i < count; i++) {
        put_scalar(&values, &scalars[i]);
    }
    put_wall_time(&event);
    put_tag(&event, EVENT_STEP, WIRE_VARINT);
    put_varint(&event, step);
    put_bytes(&event, EVENT_SUMMARY, values.bytes, values.length);
    return write_event(summary, &event, error);
}

rps_status
rps_summary_restart(
        struct rps_summary *summary, uint64_t step, struct rps_error *error)
{
    struct message session = {.length = 0};
    struct message event = {.length = 0};

    put_tag(&session, SESSION_STATUS, WIRE_VARINT);
    put_varint(&session, SESSION_START);
    put_wall_time(&event);
    put_tag(&event, EVENT_STEP, WIRE_VARINT);
    put_varint(&event, step);
    put_bytes(&event, EVENT_SESSION_LOG, session.bytes, session.length);
    return write_event(summary, &event, error);
}

rps_status
rps_summary_close(struct rps_summary *summary, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (summary == NULL) {
        return RPS_OK;
    }
    if (summary->fd >= 0 && close(summary->fd) != 0) {
        status = rps_fail(error, RPS_E_IO, "summaries: %s: %s", summary->path,
                strerror(errno));
    }
    free(summary->path);
    free(summary);
    return status;
}
