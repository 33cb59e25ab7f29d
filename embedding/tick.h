/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks: what `last` counts. A tick is a step, or, where max_cold_secs is
 * set, max(1, max_cold_secs / 2^22) seconds, so that max_cold_secs are less
 * than 2^23 ticks, half of what 24 bits hold.
 *
 * Ticks never go back: a row is stamped with the newest tick there is when it
 * is stepped. So the push of a replica that is behind (async) hides no change
 * that was made before it, and makes no row look cold. A ring of marks
 * (step, tick) leads from a step to a tick: a push of a later step has that
 * tick or a later one.
 *
 * An age, in ticks, is that of the newest tick; it is right for rows that
 * are younger than 2^24 ticks, which upkeep sees to (RPS_AGE_MAX).
 */
#ifndef RPS_EMBEDDING_TICK_H
#define RPS_EMBEDDING_TICK_H

#include "embedding/meta.h"
#include "embedding/table_impl.h"

/** Older rows are stamped anew, as so old: a stamp never wraps unseen. */
#define RPS_AGE_MAX ((uint32_t)3 << 22)

/** Seconds a tick; 0: a tick is a step. */
uint64_t rps_tick_secs(const rps_table_spec *spec);

static inline uint64_t
rps_tick_of(const rps_table_spec *spec, struct rps_now now)
{
    const uint64_t secs = rps_tick_secs(spec);

    return secs == 0 ? now.step : now.unix_s / secs;
}

/** max_cold_* in ticks; 0: rows do not get cold. */
uint64_t rps_cold_ticks(const rps_table_spec *spec);

/** Whether anything asks how old a row is. */
static inline bool
rps_ages_matter(const rps_table_spec *spec)
{
    return spec->max_cold_secs != 0 || spec->max_cold_steps != 0 ||
           spec->on_full != RPS_ON_FULL_REFUSE;
}

/**
 * The tick to stamp a push with; raises `newest` to it. Before the locks
 * under which it is stamped.
 */
uint64_t rps_table_note(struct rps_table *table, struct rps_now now);

/** The newest tick, at least `tick`: under a lock, no stamp in it is newer. */
static inline uint64_t
rps_newest_locked(const struct rps_table *table, uint64_t tick)
{
    const uint64_t newest = rps_counted(&table->newest);

    return newest > tick ? newest : tick;
}

static inline uint32_t
rps_age_of(uint32_t meta, uint64_t newest)
{
    return (uint32_t)(newest - RPS_META_LAST(meta)) & RPS_TICK_MASK;
}

/**
 * Rows changed after step `since` have a later tick than the one returned.
 * False: it is too long ago to know.
 */
bool rps_tick_since(
        struct rps_table *table, uint64_t since, uint64_t *tick_out);

#endif /* RPS_EMBEDDING_TICK_H */
