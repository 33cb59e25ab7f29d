/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/turn.h"

#include <string.h>

void
rps_turn_init(struct rps_turn *turn, const struct rps_model *model,
        struct rps_bags_work *work)
{
    memset(turn, 0, sizeof(*turn));
    for (uint32_t t = 0; t < model->table_count; t++) {
        rps_bags_init(&turn->bags[t], &model->tables[t], &work[t]);
    }
}

void
rps_turn_finish(struct rps_turn *turn)
{
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_bags_finish(&turn->bags[t]);
        rps_held_finish(&turn->held[t]);
        rps_late_finish(&turn->late[t]);
        rps_slots_finish(&turn->slots[t]);
    }
    rps_batch_finish(&turn->batch);
}
