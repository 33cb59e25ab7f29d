/* SPDX-License-Identifier: Apache-2.0 */
/* What follows the rounds: a delta, and traffic without and beside a save. */
#ifndef RPS_BENCH_CHECKPOINT_BESIDE_H
#define RPS_BENCH_CHECKPOINT_BESIDE_H

#include "bench/checkpoint/saves.h"

/** Save, push to some rows, save these, restore both. Errors: in
 * saves->error. */
rps_status bench_part_delta(struct bench_saves *saves, uint64_t step);

/** Pushes and lookups at half of the peak, idle and beside full saves. */
rps_status bench_part_traffic(struct bench_saves *saves, uint64_t step);

#endif /* RPS_BENCH_CHECKPOINT_BESIDE_H */
