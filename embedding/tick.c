/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the marks that lead from steps to ticks of seconds. */
#include "embedding/tick.h"

#include "embedding/alter.h"

#define TICKS_LOG2 22u /* max_cold_secs are so many ticks, or up to twice */

uint64_t
rps_tick_secs(const rps_table_spec *spec)
{
    const uint64_t secs = spec->max_cold_secs >> TICKS_LOG2;

    return spec->max_cold_secs == 0 ? 0 : secs == 0 ? 1 : secs;
}

uint64_t
rps_cold_ticks(const rps_table_spec *spec)
{
    return spec->max_cold_secs == 0 ? spec->max_cold_steps
                                    : spec->max_cold_secs / rps_tick_secs(spec);
}

static void
mark(struct rps_table *table, struct rps_mark mark)
{
    struct rps_marks *marks = &table->marks;

    pthread_mutex_lock(&marks->lock);
    /* of one step the first: later ones say less */
    if (marks->count == 0 ||
            mark.step > marks->ring[(marks->count - 1) % RPS_MARKS].step) {
        marks->ring[marks->count % RPS_MARKS] = mark;
        marks->count++;
    }
    pthread_mutex_unlock(&marks->lock);
}

uint64_t
rps_table_note(struct rps_table *table, struct rps_now now)
{
    uint64_t tick = rps_tick_of(&table->spec, now);
    uint64_t newest = 0;

    /* acquire: who sees that it is done sees the new `newest` */
    if (atomic_load_explicit(&table->restamp, memory_order_acquire)) {
        rps_table_restamp_due(table, tick);
    }
    newest = rps_counted(&table->newest);
    if (tick <= newest) {
        tick = newest;
    } else if (rps_tick_secs(&table->spec) != 0) {
        mark(table, (struct rps_mark){.step = now.step, .tick = tick});
    }
    rps_table_note_step(table, tick);
    return tick;
}

void
rps_table_set_now(struct rps_table *table, struct rps_now now)
{
    (void)rps_table_note(table, now);
}

/*
 * The newest mark that is not beyond the step. A push that read the clock
 * just before that mark may have stamped just after it: one tick less.
 */
bool
rps_tick_since(struct rps_table *table, uint64_t since, uint64_t *tick_out)
{
    struct rps_marks *marks = &table->marks;
    bool found = false;

    if (rps_tick_secs(&table->spec) == 0) {
        *tick_out = since;
        return true;
    }
    pthread_mutex_lock(&marks->lock);
    for (uint64_t i = marks->count;
            !found && i > 0 && i + RPS_MARKS > marks->count; i--) {
        const struct rps_mark *at = &marks->ring[(i - 1) % RPS_MARKS];
        if (at->step <= since && at->tick >= 2) {
            *tick_out = at->tick - 2;
            found = true;
        }
    }
    pthread_mutex_unlock(&marks->lock);
    return found;
}
