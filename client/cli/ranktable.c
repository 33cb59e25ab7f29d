/* SPDX-License-Identifier: Apache-2.0 */
/* recps ranktable plan: ranks in an order whose ring stays near. */
#include "conf/ranktable.h"

#include "base/file.h"
#include "base/text.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
        "usage: recps ranktable plan --ranktable FILE --topology FILE "
        "[--json]\n"
        "                            [--output FILE]\n"
        "\n"
        "Order the ranks of an HCCL rank table so that neighbours of the ring\n"
        "share a host, then a switch, and print how often the ring crosses\n"
        "from host to host and from switch to switch, before and after.\n";

enum {
    FLAG_RANKTABLE,
    FLAG_TOPOLOGY,
    FLAG_OUTPUT
};

static struct rps_tool_flag flags[] = {
        {.name = "ranktable",
                .argument = "FILE",
                .help = "the rank table: JSON, version 1.0"},
        {.name = "topology",
                .argument = "FILE",
                .help = "the switch of each host, the parent of each switch"},
        {.name = "output",
                .is_output = true,
                .argument = "FILE",
                .help = "write the rank table with the new ranks here"},
        {.name = NULL},
};

struct plan {
    struct rps_ranktable table;
    uint32_t *order; /* [rank_count]: place -> rank before */
    struct rps_ring_crossings before;
    struct rps_ring_crossings after;
    bool changed;
};

static rps_status
make_plan(struct plan *plan, struct rps_error *error)
{
    const struct rps_ring *ring = &plan->table.ring;
    rps_status status;

    plan->order = calloc(ring->rank_count, sizeof(*plan->order));
    if (plan->order == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the plan");
    }
    for (uint32_t i = 0; i < ring->rank_count; i++) {
        plan->order[i] = i;
    }
    plan->before = rps_ring_count(ring, plan->order);
    status = rps_ring_plan(ring, plan->order, error);
    if (status != RPS_OK) {
        return status;
    }
    plan->after = rps_ring_count(ring, plan->order);
    for (uint32_t i = 0; i < ring->rank_count; i++) {
        plan->changed = plan->changed || plan->order[i] != i;
    }
    return RPS_OK;
}

static const char *
switch_name(const struct rps_ranktable *table, uint32_t rank)
{
    return table
            ->switch_names[table->ring.switch_of[table->ring.host_of[rank]]];
}

static json_t *
crossings_value(struct rps_ring_crossings crossings)
{
    return json_pack("{sIsIsI}", "hosts", (json_int_t)crossings.hosts,
            "switches", (json_int_t)crossings.switches, "links",
            (json_int_t)crossings.links);
}

static int
print_json(const struct plan *plan, const char *output)
{
    const struct rps_ranktable *table = &plan->table;
    json_t *order = json_array();

    for (uint32_t i = 0; i < table->ring.rank_count; i++) {
        const uint32_t rank = plan->order[i];

        json_array_append_new(
                order, json_pack("{sIsIssssss}", "rank", (json_int_t)i, "was",
                               (json_int_t)rank, "server_id",
                               table->host_names[table->ring.host_of[rank]],
                               "device_id", table->device_ids[rank], "switch",
                               switch_name(table, rank)));
    }
    return rps_tool_print_json(json_pack("{sIsososbsoss?}", "ranks",
            (json_int_t)table->ring.rank_count, "before",
            crossings_value(plan->before), "after",
            crossings_value(plan->after), "changed", plan->changed, "order",
            order, "output", output));
}

static bool
print_order(const struct plan *plan)
{
    const struct rps_ranktable *table = &plan->table;
    struct rps_table_print out = {
            .columns = 5,
            .titles = {"rank", "was", "host", "device", "switch"},
            .right = {true, true, false, true, false},
    };

    for (uint32_t i = 0; i < table->ring.rank_count; i++) {
        const uint32_t rank = plan->order[i];

        rps_table_print_cell(&out, "%" PRIu32, i);
        rps_table_print_cell(&out, "%" PRIu32, rank);
        rps_table_print_cell(
                &out, "%s", table->host_names[table->ring.host_of[rank]]);
        rps_table_print_cell(&out, "%s", table->device_ids[rank]);
        rps_table_print_cell(&out, "%s", switch_name(table, rank));
    }
    return rps_table_print_end(&out);
}

static bool
print_crossings(const struct plan *plan)
{
    const struct {
        const char *name;
        uint64_t before, after;
    } lines[] = {
            {"hosts", plan->before.hosts, plan->after.hosts},
            {"switches", plan->before.switches, plan->after.switches},
            {"links", plan->before.links, plan->after.links},
    };
    struct rps_table_print out = {
            .columns = 3,
            .titles = {"crossings", "before", "after"},
            .right = {false, true, true},
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        rps_table_print_cell(&out, "%s", lines[i].name);
        rps_table_print_cell(&out, "%" PRIu64, lines[i].before);
        rps_table_print_cell(&out, "%" PRIu64, lines[i].after);
    }
    return rps_table_print_end(&out);
}

static int
print_table(const struct plan *plan, const char *output)
{
    bool ok = print_order(plan);

    printf("\n");
    ok = ok && print_crossings(plan);
    if (!plan->changed) {
        printf("\nno order is better: the ranks stay as they are\n");
    }
    if (output != NULL) {
        printf("\nwritten: %s\n", output);
    }
    return ok ? RPS_TOOL_OK
              : rps_tool_fail(RPS_TOOL_FAILED, "ranktable",
                        "no memory, or standard output is gone");
}

static rps_status
write_table(struct plan *plan, const char *path, struct rps_error *error)
{
    char *text = rps_ranktable_text(&plan->table, plan->order);
    rps_status status =
            text == NULL ? rps_fail(error, RPS_E_NOMEM,
                                   "no memory for the rank table")
                         : rps_file_replace(path, text, strlen(text), error);

    free(text);
    return status;
}

static int
show(const struct rps_tool_call *call, struct plan *plan)
{
    const char *output = call->flags[FLAG_OUTPUT].value;
    struct rps_error error = {.text = ""};
    /* first: what is printed says that it was written */
    const rps_status status =
            output != NULL ? write_table(plan, output, &error) : RPS_OK;
    const char *written = status == RPS_OK ? output : NULL;
    const int code = call->options->json ? print_json(plan, written)
                                         : print_table(plan, written);

    return status == RPS_OK ? code
                            : rps_tool_fail_output(
                                      "ranktable", "--output", status, &error);
}

static int
check_call(const struct rps_tool_call *call)
{
    if (call->operand_count != 1 || strcmp(call->operands[0], "plan") != 0) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "ranktable", "say what to do: plan");
    }
    for (int i = 0; i <= FLAG_OUTPUT; i++) {
        const char *value = call->flags[i].value;

        if ((value == NULL && i != FLAG_OUTPUT) ||
                (value != NULL && value[0] == '\0')) {
            return rps_tool_fail(RPS_TOOL_USAGE, "ranktable",
                    "--%s FILE is missing", call->flags[i].name);
        }
    }
    return RPS_TOOL_OK;
}

static int
run(const struct rps_tool_call *call)
{
    struct plan plan = {.order = NULL};
    struct rps_error error;
    int code = check_call(call);
    rps_status status;

    if (code != RPS_TOOL_OK) {
        return code;
    }
    status = rps_ranktable_read(
            &plan.table, call->flags[FLAG_RANKTABLE].value, &error);
    if (status == RPS_OK) {
        status = rps_ranktable_read_topology(
                &plan.table, call->flags[FLAG_TOPOLOGY].value, &error);
    }
    if (status == RPS_OK) {
        status = make_plan(&plan, &error);
    }
    code = status == RPS_OK ? show(call, &plan)
                            : rps_tool_fail_input("ranktable", status, &error);
    free(plan.order);
    rps_ranktable_finish(&plan.table);
    return code;
}

const struct rps_tool rps_tool_ranktable = {
        .name = "ranktable",
        .usage = usage,
        .summary = "order ranks so that ring neighbours are near",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .words = "plan",
        .run = run,
};
