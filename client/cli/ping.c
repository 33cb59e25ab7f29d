/* SPDX-License-Identifier: Apache-2.0 */
/* recps ping: round trips to every server. */
#include "base/clock.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdlib.h>

#define ROUND_TRIPS 5

static const char usage[] =
        "usage: recps ping [--json] [OPTION]...\n"
        "\n"
        "Send each server of a running job five PINGs and show how it is\n"
        "reached, the fastest and the mean round trip in milliseconds.\n";

struct trip {
    double fastest_ms;
    double mean_ms;
    const char *transport;
    json_t *answer; /* of the last one; new reference, or NULL */
};

static rps_status
measure(rps_client *client, uint32_t ps, struct trip *trip)
{
    double sum = 0;

    trip->answer = NULL;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char *text = NULL;
        uint64_t start = rps_clock_ns();
        rps_status status = rps_ping(client, ps, &text);
        double ms = (double)(rps_clock_ns() - start) / 1e6;

        if (status != RPS_OK) {
            json_decref(trip->answer);
            return status;
        }
        json_decref(trip->answer);
        trip->answer = text != NULL ? json_loads(text, 0, NULL) : NULL;
        free(text);
        trip->fastest_ms =
                i == 0 || ms < trip->fastest_ms ? ms : trip->fastest_ms;
        sum += ms;
    }
    trip->mean_ms = sum / ROUND_TRIPS;
    trip->transport = rps_transport_str(rps_server_transport(client, ps));
    return RPS_OK;
}

static json_t *
to_json(uint32_t ps, const char *address, const struct trip *trip)
{
    return json_pack("{s:i, s:s?, s:s, s:f, s:f, s:O?}", "index", (int)ps,
            "address", address, "transport", trip->transport, "fastest_ms",
            trip->fastest_ms, "mean_ms", trip->mean_ms, "answer", trip->answer);
}

static int
ping_all(const struct rps_tool_call *call, rps_client *client)
{
    const rps_cluster *cluster = &call->options->cluster;
    struct rps_table_print print = {.columns = 5,
            .titles = {"ps", "address", "over", "fastest ms", "mean ms"},
            .right = {true, false, false, true, true}};
    json_t *list = json_array();
    int code = RPS_TOOL_OK;

    for (uint32_t ps = 0; ps < cluster->ps_count && code == RPS_TOOL_OK; ps++) {
        const char *address = cluster->ps[ps].address;
        struct trip trip;
        rps_status status = measure(client, ps, &trip);

        if (status != RPS_OK) {
            code = rps_tool_client_failed(client, "ping", status);
            break;
        }
        rps_table_print_cell(&print, "%" PRIu32, ps);
        rps_table_print_cell(&print, "%s", address != NULL ? address : "?");
        rps_table_print_cell(&print, "%s", trip.transport);
        rps_table_print_cell(&print, "%.3f", trip.fastest_ms);
        rps_table_print_cell(&print, "%.3f", trip.mean_ms);
        json_array_append_new(list, to_json(ps, address, &trip));
        json_decref(trip.answer);
    }
    if (code == RPS_TOOL_OK && call->options->json) {
        code = rps_tool_print_json(json_pack("{s:O}", "ps", list));
        print.failed = true; /* release it unprinted */
        rps_table_print_end(&print);
    } else if (!rps_table_print_end(&print)) {
        code = RPS_TOOL_FAILED;
    }
    json_decref(list);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    rps_client *client = NULL;
    int code = rps_tool_open(call, "ping", &client);

    if (code == RPS_TOOL_OK) {
        code = ping_all(call, client);
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_ping = {
        .name = "ping",
        .usage = usage,
        .summary = "round trips to every server",
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
