/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meta of a row: when it was last pushed and how often, in four bytes.
 *
 *   31..24 uses: a Morris counter    23..0 last: step mod 2^24
 */
#ifndef RPS_EMBEDDING_META_H
#define RPS_EMBEDDING_META_H

#include <stdint.h>

#define RPS_TICK_MASK 0xffffffu
#define RPS_USES_MAX  255u

static inline uint32_t
rps_meta_make(uint64_t step, uint32_t uses)
{
    return (uint32_t)(step & RPS_TICK_MASK) | uses << 24;
}

/** Steps since the row's last push in which it had none: 0 where it never
 * had one, or where a later step has been stamped. */
static inline uint32_t
rps_meta_skipped(uint32_t meta, uint64_t step)
{
    const uint32_t age = (uint32_t)(step - meta) & RPS_TICK_MASK;

    return meta >> 24 == 0 || age == 0 || age > RPS_TICK_MASK / 2 ? 0 : age - 1;
}

/** How many uses a counter stands for, about: 0, 1, 2.06, 3.2, ... 8.6e7. */
double rps_uses_estimate(uint32_t uses);

/**
 * The counter after `count` more uses: right on average, one draw (any 64
 * bits) an update however large count is.
 */
uint32_t rps_uses_add(uint32_t uses, uint64_t count, uint64_t draw);

/**
 * One more use: the counter it is added to, and the 53-bit draws below which
 * that rises by one. Constant after rps_uses_prepare().
 */
struct rps_uses_ones {
    uint64_t odds[RPS_USES_MAX + 1];
    uint8_t from[RPS_USES_MAX + 1];
};

extern struct rps_uses_ones rps_uses_ones;

/** Work out the tables; before the first rps_uses_add_one(). Any thread. */
void rps_uses_prepare(void);

/** rps_uses_add(uses, 1, draw), without working anything out. */
static inline uint32_t
rps_uses_add_one(uint32_t uses, uint64_t draw)
{
    return rps_uses_ones.from[uses] + (draw >> 11 < rps_uses_ones.odds[uses]);
}

#endif /* RPS_EMBEDDING_META_H */
