/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a channel that are on their way out: borrowed, oldest first.
 */
#ifndef RPS_CLIENT_OUT_FRAMES_H
#define RPS_CLIENT_OUT_FRAMES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct rps_out_frame {
    struct rps_out_frame *next;
    const uint8_t *bytes; /* borrowed */
    size_t length;
    size_t written;
};

struct rps_out_frames {
    struct rps_out_frame *first; /* NULL: all is written */
    struct rps_out_frame **tail;
};

void rps_out_frames_init(struct rps_out_frames *out);

/** NOMEM. */
rps_status rps_out_frames_add(struct rps_out_frames *out, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error);

/** n bytes more of the first one are written; with its last it goes. */
void rps_out_frames_wrote(struct rps_out_frames *out, size_t n);

/** They are not borrowed any more. */
void rps_out_frames_clear(struct rps_out_frames *out);

/** CORRUPT: the reply answers what the server cannot have read to its end. */
rps_status rps_out_frames_check_reply(const struct rps_out_frames *out,
        uint64_t request_id, struct rps_error *error);

#endif /* RPS_CLIENT_OUT_FRAMES_H */
