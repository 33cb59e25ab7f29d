/* SPDX-License-Identifier: Apache-2.0 */
#include "client/out_frames.h"

#include "proto/frame.h"

#include <stdlib.h>
#include <string.h>

void
rps_out_frames_init(struct rps_out_frames *out)
{
    out->first = NULL;
    out->tail = &out->first;
}

rps_status
rps_out_frames_add(struct rps_out_frames *out, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error)
{
    struct rps_out_frame *added = calloc(1, sizeof(*added));

    if (added == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    added->bytes = frame;
    added->length = frame_bytes;
    *out->tail = added;
    out->tail = &added->next;
    return RPS_OK;
}

static void
drop_first(struct rps_out_frames *out)
{
    struct rps_out_frame *first = out->first;

    out->first = first->next;
    if (out->first == NULL) {
        out->tail = &out->first;
    }
    free(first);
}

void
rps_out_frames_wrote(struct rps_out_frames *out, size_t n)
{
    out->first->written += n;
    if (out->first->written == out->first->length) {
        drop_first(out);
    }
}

void
rps_out_frames_clear(struct rps_out_frames *out)
{
    while (out->first != NULL) {
        drop_first(out);
    }
}

rps_status
rps_out_frames_check_reply(const struct rps_out_frames *out,
        uint64_t request_id, struct rps_error *error)
{
    const struct rps_out_frame *frame = out->first;
    uint64_t id = 0;

    for (; frame != NULL; frame = frame->next) {
        memcpy(&id, frame->bytes + RPS_REQUEST_ID_AT, sizeof(id));
        if (id == request_id) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "a reply to a request that is not sent yet");
        }
    }
    return RPS_OK;
}
