/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a device, for its files: device.c (opening, telling),
 * device_shape.c, device_feed.c, device_step.c, device_watch.c,
 * device_predict.c. */
#ifndef RPS_WORKER_DEVICE_IMPL_H
#define RPS_WORKER_DEVICE_IMPL_H

#include "client/worker/device.h"
#include "client/worker/device_rows.h"
#include "client/worker/net.h"

#include <pthread.h>

/**
 * What a training step is compiled for, and where everything lies, in bytes.
 *
 * A set is what the input thread copies ahead, `in` what a step's fetch brings,
 * `out` what goes back beside the variables' gradients:
 *
 *   set  dense [rows][dense], labels [rows][labels], and of each table
 *        starts i32 [rows * bags + 1], slots i32 [tokens]
 *   in   f64 [4]: factor of the loss, of its gradient, step, 0;
 *        of each table rows [distinct][dim]
 *   out  f64 loss; of each table gradients [rows][bags][dim]
 *
 * With a device cache rows stay where they are (`store` of the device), and a
 * token's slot is its row's place there, which is known with the step's fetch:
 *
 *   set  without slots
 *   in   f64 [4]; of each table header i32 [2] {first float, rows that move},
 *        places i32 [distinct], slots i32 [tokens]
 *   packed  the rows that move, table behind table; as many as there are
 */
struct rps_device_shape {
    bool cached; /* set before it grows */
    uint64_t rows;
    uint64_t tokens[RPS_MODEL_TABLES_MAX];   /* capacity */
    uint64_t distinct[RPS_MODEL_TABLES_MAX]; /* capacity */
    uint64_t labels_at;                      /* dense is at 0 */
    uint64_t starts_at[RPS_MODEL_TABLES_MAX];
    uint64_t slots_at[RPS_MODEL_TABLES_MAX];
    uint64_t set_bytes;
    uint64_t rows_at[RPS_MODEL_TABLES_MAX];
    uint64_t header_at[RPS_MODEL_TABLES_MAX]; /* cached: in `in` */
    uint64_t places_at[RPS_MODEL_TABLES_MAX];
    uint64_t in_bytes;
    uint64_t packed_floats;
    uint64_t gradients_at[RPS_MODEL_TABLES_MAX];
    uint64_t out_bytes;
};

#define RPS_DEVICE_ALIGN   64u
#define RPS_DEVICE_STEP_AT (2 * sizeof(double)) /* in `in` */

/** Does the turn's batch fit? */
bool rps_device_shape_fits(const struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn);

/** What a turn that does not fit has more of. */
const char *rps_device_shape_lacks(const struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn);

/** Grow it, so that the turn's batch and others like it fit. */
void rps_device_shape_grow(struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn);

/** The set of a turn that fits: set [set_bytes]. */
void rps_device_shape_pack(const struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn, char *set);

/** Why an input thread ended. */
enum rps_feed_end {
    RPS_FEED_DONE = 0, /* no step is left, or it was told to */
    RPS_FEED_GROW,     /* the next turn does not fit */
    RPS_FEED_BAD_TURN, /* the next turn could not be read */
    RPS_FEED_FAILED    /* the device: status and error say why */
};

/** The input thread: packs each turn of a reader and copies it to the device
 * ahead of the steps. */
struct rps_feed {
    struct rps_reader *reader;            /* set before start, as all these */
    const struct rps_model *model;        /* borrowed */
    const struct rps_device_shape *shape; /* borrowed */
    rps_npu_queue *queue;                 /* borrowed */
    char *set;                            /* the thread's */
    uint64_t next;                        /* the turn's number */
    pthread_t thread;
    bool runs;
    /* the thread's, until it is joined */
    enum rps_feed_end end;
    rps_status status;
    struct rps_error error;
};

rps_status rps_feed_start(struct rps_feed *feed, struct rps_error *error);

/** Wait for its end; cancel: at once, whatever lies in the queue is dropped. */
void rps_feed_join(struct rps_feed *feed, bool cancel);

/** A compiled training step and its memory. Zeroed: there is none. */
struct rps_device_step {
    rps_npu_step *compiled;
    rps_npu_queue *queue;
    rps_npu_tensor set, in, out; /* f32 [bytes / 4] */
    rps_npu_tensor packed;       /* [packed_floats]; cached */
    char *in_host, *out_host;    /* [in_bytes], [out_bytes] */
    float *packed_host;          /* [packed_floats] */
    uint64_t packed_bytes;       /* of the step in hand */
    struct rps_device_shape shape;
    struct rps_feed feed;

    /* of the steps that run */
    struct rps_loop *loop;
    struct rps_loop_step hand;
    uint64_t done;     /* iterations of this launch that ended */
    rps_status status; /* of a host function; its words are the run's */
};

/** A compiled forward of a tile. Zeroed: there is none. */
struct rps_device_predictor {
    rps_npu_step *compiled;
    rps_npu_tensor in, out;
    char *in_host;
    float *out_host; /* [tile][labels] */
    uint64_t rows_at[RPS_MODEL_TABLES_MAX];
    uint64_t starts_at[RPS_MODEL_TABLES_MAX];
    uint64_t in_bytes;
};

struct rps_device {
    const struct rps_settings *settings; /* borrowed */
    struct rps_model *model;             /* borrowed */
    rps_npu *npu;
    rps_npu_stream *compute;
    rps_npu_stream *copies; /* of what is offloaded; NULL: nothing is */
    struct rps_net net;
    struct rps_device_rows *rows;               /* NULL: no device cache */
    rps_npu_tensor store[RPS_MODEL_TABLES_MAX]; /* [places][dim] */
    struct rps_device_step step;
    struct rps_device_predictor predictor;
    uint64_t reserved_first; /* by the pool, once a launch ended; 0: none */
    uint64_t reserved_last;  /* the same, of the last launch */
    uint64_t queue_bytes;    /* of the device, beside the pool's */
    uint64_t loop_size;      /* as it was given, at the last launch */
    uint64_t launches;       /* that training's steps took, as counted there */
    uint64_t steps;          /* of training */
    struct rps_dump *dump;   /* borrowed; NULL: none */
    bool full;               /* some memory was not to be had */
    bool told;               /* that a step was compiled again */
};

/** The library's words behind the device's; NOMEM: with the pool's numbers. */
rps_status rps_device_failed(
        struct rps_device *device, rps_status status, struct rps_error *error);

/** End a capture in which `status` is what its calls said; where they failed,
 * their words stay. */
rps_status rps_device_capture_end(
        struct rps_device *device, rps_status status, rps_npu_step **step_out);

/** f32 [bytes / 4], bytes a multiple of RPS_DEVICE_ALIGN. */
rps_status rps_device_make(
        struct rps_device *device, uint64_t bytes, rps_npu_tensor *tensor_out);

/* device_store.c: what the device cache adds to a compiled step. */

/** Room for the shape's rows: those that stay, and those that do not fit. What
 * is there stays. */
rps_status rps_device_store_reserve(struct rps_device *device);
void rps_device_store_finish(struct rps_device *device);

/** The turn's rows to where the device's copies take them. */
rps_status rps_device_store_pack(struct rps_device *device,
        const struct rps_turn *turn, struct rps_error *error);

/** Behind the copy of `in`: rows that move to their places. */
rps_status rps_device_store_give(struct rps_device *device);

/* device_watch.c: what a dump has of a step. */

/** It is compiled: so much it will write. */
rps_status rps_device_expect_dump(struct rps_device *device,
        struct rps_loop *loop, const struct rps_turn *turn);

/** Its rows are where its copies take them. */
rps_status rps_device_dump_fetched(struct rps_device *device);

void rps_device_step_finish(struct rps_device *device);
void rps_device_predictor_finish(struct rps_device *device);

static inline uint64_t
rps_device_align(uint64_t bytes)
{
    return (bytes + RPS_DEVICE_ALIGN - 1) / RPS_DEVICE_ALIGN * RPS_DEVICE_ALIGN;
}

#endif /* RPS_WORKER_DEVICE_IMPL_H */
