/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input thread. It follows the reader, as far ahead of the steps as the
 * queue is deep, and copies what of a batch does not depend on earlier steps.
 * Where it cannot go on it ends the queue: the loop ends before the step that
 * would have needed more, and the run's thread looks why.
 */
#include "client/worker/device_impl.h"

#include <signal.h>

/* May the next turn be copied? */
static bool
see(struct rps_feed *feed, const struct rps_turn **turn_out)
{
    const struct rps_turn *turn = rps_reader_see(feed->reader, feed->next);

    *turn_out = turn;
    if (turn == NULL) {
        feed->end = RPS_FEED_DONE;
        return false;
    }
    if (turn->status != RPS_OK) {
        feed->end = RPS_FEED_BAD_TURN;
        return false;
    }
    if (!rps_device_shape_fits(feed->shape, feed->model, turn)) {
        feed->end = RPS_FEED_GROW;
        return false;
    }
    return true;
}

static void *
run(void *context)
{
    struct rps_feed *feed = context;
    const void *const from[] = {feed->set};
    const struct rps_turn *turn;
    rps_status status = RPS_OK;

    while (status == RPS_OK && see(feed, &turn)) {
        rps_device_shape_pack(feed->shape, feed->model, turn, feed->set);
        status = rps_npu_queue_put(feed->queue, from);
        feed->next++;
    }
    if (status == RPS_E_CANCELED) {
        feed->end = RPS_FEED_DONE;
    } else if (status != RPS_OK) {
        feed->end = RPS_FEED_FAILED;
        feed->status = rps_fail(&feed->error, status, "input of step %llu: %s",
                (unsigned long long)turn->step, rps_npu_error());
    }
    rps_npu_queue_end(feed->queue);
    return NULL;
}

/* Signals are the main thread's: they interrupt its waits. */
rps_status
rps_feed_start(struct rps_feed *feed, struct rps_error *error)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    feed->end = RPS_FEED_DONE;
    feed->status = RPS_OK;
    feed->runs = pthread_create(&feed->thread, NULL, run, feed) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return feed->runs ? RPS_OK
                      : rps_fail(error, RPS_E_NOMEM,
                                "cannot start the thread that copies batches "
                                "to the NPU");
}

void
rps_feed_join(struct rps_feed *feed, bool cancel)
{
    if (!feed->runs) {
        return;
    }
    if (cancel) {
        rps_npu_queue_cancel(feed->queue);
    }
    (void)pthread_join(feed->thread, NULL);
    feed->runs = false;
    rps_npu_queue_restart(feed->queue);
}
