/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is to take no processor from who answers requests. */
#ifndef RPS_EMBEDDING_CHECKPOINT_BACKGROUND_H
#define RPS_EMBEDDING_CHECKPOINT_BACKGROUND_H

/* Added to the caller's nice value: a third of its weight where all
 * processors are in use, so that a save ends in time, too. */
#define RPS_CKPT_NICE 5

/**
 * Call work(context) on a thread of its own, which never takes a processor
 * away by waking up (SCHED_BATCH) and has less of one, and wait for its end.
 * So do the threads that it makes; the caller's own priority stays. Where no
 * thread can be made, the caller does it.
 */
void rps_ckpt_run_in_background(void (*work)(void *context), void *context);

#endif /* RPS_EMBEDDING_CHECKPOINT_BACKGROUND_H */
