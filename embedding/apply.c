/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One update of a table. Three passes, so that running out of memory finds
 * nothing changed and no lock is held for long:
 *
 *   1  group the contributions by shard and distinct key    (group.h)
 *   2  make sure that new rows have room                    (room.h)
 *   3  step each key's row                                  (stepping.h)
 */
#include "embedding/admit.h"
#include "embedding/stepping.h"
#include "embedding/tick.h"

#include <math.h>
#include <stdlib.h>

#define SLICE_FLOATS ((size_t)65536) /* 256 KiB of sums stay in the L2 */

static uint64_t
uses_of_group(const struct rps_apply *apply, size_t group)
{
    const struct rps_grouping *grouping = &apply->grouping;
    uint64_t uses = 0;

    for (uint32_t e = grouping->firsts[group]; e != RPS_ENTRY_NONE;
            e = grouping->entries[e].next) {
        uses += grouping->entries[e].uses;
    }
    return uses;
}

/* Who is admitted has to be known before rows are made. */
static rps_status
sum_uses(struct rps_apply *apply)
{
    const size_t groups = apply->grouping.group_count;

    if (rps_admits_all(apply->table) || groups == 0) {
        return RPS_OK;
    }
    apply->uses = malloc(groups * sizeof(*apply->uses));
    if (apply->uses == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t g = 0; g < groups; g++) {
        apply->uses[g] = uses_of_group(apply, g);
    }
    return RPS_OK;
}

static rps_status
begin_room(struct rps_apply *apply)
{
    apply->room = (struct rps_room){.table = apply->table,
            .keys = apply->grouping.keys,
            .hashes = apply->grouping.hashes,
            .starts = apply->grouping.starts,
            .uses = apply->uses,
            .drop_new = apply->update->drop_new};
    return rps_room_begin(&apply->room);
}

static rps_status
prepare(struct rps_apply *apply, const struct rps_contribution *contributions,
        size_t n)
{
    const rps_table_spec *spec = &apply->table->spec;
    const size_t dim = spec->dim;
    const size_t fits = SLICE_FLOATS / dim;
    rps_status status = RPS_OK;

    apply->slice_keys = fits < RPS_SLICE_KEYS ? fits : RPS_SLICE_KEYS;
    apply->sums = malloc(apply->slice_keys * dim * sizeof(*apply->sums));
    apply->scratch = malloc(rps_step_scratch_floats(&apply->table->spec) *
                            sizeof(*apply->scratch));
    apply->borrows = apply->update->scale == 1.0f && spec->clip_value <= 0.0f &&
                     spec->clip_norm <= 0.0f && spec->dense_elements == 0;
    apply->together = !apply->table->tiered && spec->dense_elements == 0;
    apply->row_bytes = rps_table_row_bytes(apply->table);
    if (apply->sums == NULL || apply->scratch == NULL) {
        return RPS_E_NOMEM;
    }
    status =
            rps_grouping_init(&apply->grouping, apply->table, contributions, n);
    if (status == RPS_OK) {
        status = sum_uses(apply);
    }
    return status == RPS_OK ? begin_room(apply) : status;
}

static void
sample_hot(struct rps_apply *apply, uint64_t push)
{
    const struct rps_grouping *grouping = &apply->grouping;

    for (size_t g = rps_hot_first(apply->table->draws, push);
            g < grouping->group_count; g += RPS_HOT_SAMPLE) {
        rps_hot_add(
                apply->table->hot, grouping->keys[g], uses_of_group(apply, g));
    }
}

/* From here on nothing can fail. */
static void
carry_out(struct rps_apply *apply)
{
    struct rps_table *table = apply->table;
    const struct rps_update *update = apply->update;
    const uint64_t pushes =
            atomic_fetch_add_explicit(&table->pushes, 1, memory_order_relaxed) +
            1;

    rps_step_init(&apply->step, &table->kernels, &table->spec,
            isnan(update->learning_rate) ? table->spec.learning_rate
                                         : update->learning_rate,
            update->t == 0 ? pushes : update->t);
    apply->together = apply->together && apply->step.plain;
    apply->tick = rps_table_note(table,
            (struct rps_now){.step = update->step, .unix_s = update->now_s});
    sample_hot(apply, pushes);
    rps_step_groups(apply);
    apply->report->nonfinite = apply->grouping.nonfinite;
    apply->report->nonfinite_key = apply->grouping.nonfinite_key;
    rps_count(&table->applied, apply->report->applied);
    rps_count(&table->nonfinite, apply->grouping.nonfinite);
    rps_count(&table->unadmitted, apply->report->unadmitted);
    rps_count(&table->dropped, apply->report->dropped);
}

rps_status
rps_table_apply(struct rps_table *table, const struct rps_update *update,
        const struct rps_contribution *contributions, size_t n,
        struct rps_apply_report *report)
{
    struct rps_apply apply = {
            .table = table, .update = update, .report = report};
    rps_status status = RPS_OK;

    *report = (struct rps_apply_report){.applied = 0};
    status = prepare(&apply, contributions, n);
    if (status == RPS_OK) {
        carry_out(&apply);
    }
    rps_room_end(&apply.room);
    rps_grouping_finish(&apply.grouping);
    free(apply.uses);
    free(apply.sums);
    free(apply.scratch);
    return status;
}
