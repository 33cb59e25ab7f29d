/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training of one replica: how it starts (start.c), goes (train.c,
 * step.c) and comes back when something was lost (recover.c).
 */
#ifndef RPS_WORKER_LOOP_H
#define RPS_WORKER_LOOP_H

#include "client/worker/fetch.h"
#include "client/worker/position.h"
#include "client/worker/run.h"

struct rps_loop {
    struct rps_run *run;
    struct rps_reader *reader;
    struct rps_fetch fetch;
    struct rps_spent spent;
    struct rps_position position; /* of the next step */
    uint64_t batches;             /* global batches of an epoch */
    uint64_t step;                /* the last one that ended */
    uint64_t last_step;           /* where this replica leaves */
    uint64_t first_step;          /* where the run began */
    uint64_t save_at;        /* the chief saves once this step ended; 0: none */
    uint64_t saved;          /* newest step saved by this run */
    bool save_due;           /* one did not come about: with the next step */
    uint64_t saving;         /* the step that is being saved; 0: none */
    uint64_t saving_ms;      /* clock when that began */
    uint64_t saving_told_ms; /* clock when it was last told of */
    double loss;             /* of the last step */
    uint64_t trips_of_step;  /* round trips of the last one */
    struct rps_loss_scale scale;
    bool skipped; /* the last step's push, for an overflow */
    bool broken;  /* it was said that the loss is not finite */
    bool left;
    uint64_t uncounted;  /* steps that went without this replica */
    uint64_t passed;     /* of them, those whose batches it did not compute */
    rps_traffic traffic; /* of the client, when its last step ended */

    bool recovers;                 /* --recover, and not in a group */
    bool goes_back;                /* this process was in the job before */
    bool finished;                 /* all is done but to say so */
    bool ended;                    /* the job, which this replica has left */
    uint32_t ways_back;            /* since a step ended last */
    struct rps_error lost;         /* why it goes back */
    char reason[RPS_REASON_BYTES]; /* the chief's, of the job's going back */
};

/** The step in hand. */
struct rps_loop_step {
    uint64_t number;
    struct rps_rates rates;
    double factor;     /* its loss scale; 0: none */
    double loss_scale; /* what the model's loss is multiplied by */
    struct rps_turn *turn;
    struct rps_model_input input; /* the caller's, between the two halves */
    double loss;          /* what the model says, then this replica's part */
    bool finite;          /* false: a gradient overflowed */
    uint64_t round_trips; /* of the client, when it began */
};

/** Rows of a step of all replicas. */
static inline uint64_t
rps_global_batch(const struct rps_settings *settings)
{
    return settings->options->batch_size * settings->replicas;
}

/** The step before the model: its batch, the rows of its keys and the values
 * of the model. */
rps_status rps_loop_before(struct rps_loop *loop, struct rps_loop_step *step);

/** The step after the model, which wrote its variables' gradients, those of
 * step->input and step->loss: pushed, ended, reported; what was decided is
 * done. */
rps_status rps_loop_after(struct rps_loop *loop, struct rps_loop_step *step);

/** Chief: epoch, step and terms to every server; tables and start values. */
rps_status rps_loop_begin(struct rps_loop *loop);

/** Every replica: wait for all, learn where to begin, open the tables; or that
 * the job has ended meanwhile. */
rps_status rps_loop_join(struct rps_loop *loop);

/**
 * Chief: does the job run already (*again_out)? Then *step_out is the newest
 * complete step of all servers, 0 without any, and loop->reason says why the
 * job goes back there.
 */
rps_status rps_loop_look_back(
        struct rps_loop *loop, bool *again_out, uint64_t *step_out);

/** Is this failure one that another beginning heals? */
bool rps_loop_may_go_back(const struct rps_loop *loop, rps_status status);

/** Drop what is in hand and connect again; to begin and join is left. The
 * stages are closed. UNREACHABLE: not in --connect-timeout. */
rps_status rps_loop_go_back(struct rps_loop *loop);

/** Joined: where from and why, to people and into the JSON log. */
rps_status rps_loop_say_back(struct rps_loop *loop, const rps_start *start);

/** A replica that left: it is needed again if the job goes back before its
 * end. */
rps_status rps_loop_await_end(struct rps_loop *loop);
/** Chief, between two steps: begin to save loop->step; training goes on when
 * the servers have their cuts. What fails there is said, and is no failure of
 * the run unless a server is gone or began anew. */
rps_status rps_loop_save(struct rps_loop *loop);

/** Chief, after each step: move the save that runs; say what came of it. */
rps_status rps_loop_save_poll(struct rps_loop *loop);

/** Chief, at the end: wait for the save that runs, then save loop->step, if
 * it is not yet. Here a failure is the run's. */
rps_status rps_loop_save_last(struct rps_loop *loop);

#endif /* RPS_WORKER_LOOP_H */
