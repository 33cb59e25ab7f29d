/* SPDX-License-Identifier: Apache-2.0 */
/* recps profile summary: totals, shares and what takes longest. */
#include "base/text.h"
#include "client/cli/profile.h"
#include "client/cli/table_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DESCRIBE_BYTES 256u

/* Of the steps' time; tracks run side by side: their sum may be more. */
static double
share_of(const struct rps_profile_side *side, uint64_t ns)
{
    return side->steps.ns > 0 ? (double)ns / (double)side->steps.ns : 0.0;
}

static double
us(uint64_t ns, uint64_t count)
{
    return (double)ns * 1e-3 / (double)count;
}

/* --- for people ---------------------------------------------------------- */

static bool
print_classes(const struct rps_profile_side *side)
{
    struct rps_table_print print = {.columns = 4,
            .titles = {"class", "ms a step", "share", "spans a step"},
            .right = {false, true, true, true}};

    for (int c = 0; c < RPS_PROFILE_CLASSES; c++) {
        uint64_t count;
        const uint64_t ns =
                rps_profile_class_ns(side, (enum rps_profile_class)c, &count);

        rps_table_print_cell(&print, "%s",
                rps_profile_class_name((enum rps_profile_class)c));
        rps_table_print_cell(
                &print, "%.3f", rps_profile_a_step(side, ns) * 1e-6);
        rps_table_print_cell(&print, "%.1f%%", 100.0 * share_of(side, ns));
        rps_table_print_cell(&print, "%.1f", rps_profile_a_step(side, count));
    }
    return rps_table_print_end(&print);
}

static void
print_row(struct rps_table_print *print, const struct rps_profile_side *side,
        const struct rps_profile_row *row)
{
    char size[32] = "-";

    if (row->bytes > 0) {
        (void)rps_format_bytes(
                (uint64_t)rps_profile_a_step(side, row->bytes), size);
    }
    rps_table_print_cell(
            print, "%.3f", rps_profile_a_step(side, row->self_ns) * 1e-6);
    rps_table_print_cell(print, "%.1f%%", 100.0 * share_of(side, row->self_ns));
    rps_table_print_cell(print, "%.1f", rps_profile_a_step(side, row->count));
    rps_table_print_cell(print, "%.1f", us(row->ns, row->count));
    rps_table_print_cell(print, "%.1f", us(row->max_ns, 1));
    rps_table_print_cell(print, "%s", size);
    if (row->flops > 0 && row->ns > 0) {
        rps_table_print_cell(
                print, "%.2f", (double)row->flops / (double)row->ns);
    } else {
        rps_table_print_cell(print, "-");
    }
    rps_table_print_cell(print, "%s%s%s%s", row->name,
            row->holds[0] != '\0' ? " (" : "", row->holds,
            row->holds[0] != '\0' ? ")" : "");
}

static bool
print_class(const struct rps_profile_side *side, enum rps_profile_class class,
        uint64_t top)
{
    struct rps_table_print print = {.columns = 8,
            .titles = {"ms a step", "share", "calls", "mean us", "max us",
                    "bytes", "Gflop/s", rps_profile_class_name(class)},
            .right = {true, true, true, true, true, true, true, false}};
    uint64_t printed = 0, all = 0;

    for (size_t i = 0; i < side->row_count; i++) {
        if (side->rows[i].class == class && all++ < top) {
            print_row(&print, side, &side->rows[i]);
            printed++;
        }
    }
    if (printed == 0) {
        return true;
    }
    printf("\n");
    if (!rps_table_print_end(&print)) {
        return false;
    }
    if (all > printed) {
        printf("%" PRIu64 " more: --top %" PRIu64 "\n", all - printed, all);
    }
    return true;
}

static void
print_ranks(const struct rps_profile_side *side)
{
    const struct rps_profile_rank *slowest = &side->ranks[0];

    for (size_t i = 1; i < side->rank_count; i++) {
        const struct rps_profile_rank *rank = &side->ranks[i];

        if (us(rank->steps.ns, rank->steps.count) >
                us(slowest->steps.ns, slowest->steps.count)) {
            slowest = rank;
        }
    }
    if (side->rank_count > 1) {
        printf("slowest: rank %" PRIu32 ", %.3f ms a step\n", slowest->rank,
                us(slowest->steps.ns, slowest->steps.count) * 1e-3);
    }
}

static int
print_text(const struct rps_profile_side *side, uint64_t top)
{
    char words[DESCRIBE_BYTES];
    bool good;

    printf("%s: %s\n", side->path,
            rps_profile_describe(side, words, sizeof(words)));
    if (side->info.dropped > 0) {
        printf("%" PRIu64 " spans are missing: they found no room\n",
                side->info.dropped);
    }
    print_ranks(side);
    printf("\n");
    good = print_classes(side);
    for (int c = 0; good && c < RPS_PROFILE_CLASSES; c++) {
        good = print_class(side, (enum rps_profile_class)c, top);
    }
    return good ? RPS_TOOL_OK
                : rps_tool_fail(RPS_TOOL_FAILED, "profile", "no memory");
}

/* --- for programs -------------------------------------------------------- */

static json_t *
row_json(const struct rps_profile_side *side, const struct rps_profile_row *row)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, "
                     "s:I}",
            "name", row->name, "type", row->type, "holds", row->holds, "count",
            (json_int_t)row->count, "total_us", us(row->ns, 1), "self_us",
            us(row->self_ns, 1), "mean_us", us(row->ns, row->count), "min_us",
            us(row->min_ns, 1), "max_us", us(row->max_ns, 1), "share",
            share_of(side, row->self_ns), "bytes", (json_int_t)row->bytes,
            "flops", (json_int_t)row->flops);
}

static json_t *
class_json(const struct rps_profile_side *side, enum rps_profile_class class,
        uint64_t top)
{
    json_t *rows = json_array();
    uint64_t all = 0, count;
    const uint64_t ns = rps_profile_class_ns(side, class, &count);

    for (size_t i = 0; i < side->row_count; i++) {
        if (side->rows[i].class == class && all++ < top) {
            json_array_append_new(rows, row_json(side, &side->rows[i]));
        }
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:I, s:o}", "count",
            (json_int_t)count, "self_us", us(ns, 1), "step_us",
            rps_profile_a_step(side, ns) * 1e-3, "share", share_of(side, ns),
            "names", (json_int_t)all, "top", rows);
}

static json_t *
to_json(const struct rps_profile_side *side, uint64_t top)
{
    json_t *answer = rps_profile_side_json(side);
    json_t *classes = json_object();

    for (int c = 0; c < RPS_PROFILE_CLASSES; c++) {
        json_object_set_new(classes,
                rps_profile_class_name((enum rps_profile_class)c),
                class_json(side, (enum rps_profile_class)c, top));
    }
    json_object_set_new(answer, "classes", classes);
    return answer;
}

int
rps_profile_summary(
        const struct rps_profile_side *side, uint64_t top, bool json)
{
    return json ? rps_tool_print_json(to_json(side, top))
                : print_text(side, top);
}
