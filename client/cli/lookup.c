/* SPDX-License-Identifier: Apache-2.0 */
/* recps lookup: rows of a table of a running job or of a checkpoint, by key. */
#include "client/cli/checkpoint_lookup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (4u << 20) /* of rows in hand */

static const char usage[] =
        "usage: recps lookup [--json] TABLE KEY... [OPTION]...\n"
        "       recps lookup [--json] TABLE --file FILE [OPTION]...\n"
        "       recps lookup [--json] --checkpoint CKPT TABLE KEY...\n"
        "\n"
        "Print a line for each key: the key and its row, as the servers have\n"
        "it now; `recps assign --file` reads such lines. A key is an unsigned\n"
        "or a negative decimal number, or 0x and hex digits. Nothing is made\n"
        "or counted as a use: a key without a row shows the table's default\n"
        "vector. With --checkpoint no server is asked.\n";

enum {
    FLAG_FILE,
    FLAG_CHECKPOINT
};

static struct rps_tool_flag flags[] = {
        RPS_KEYS_FLAG,
        {.name = "checkpoint",
                .argument = "DIR",
                .help = "rows as this checkpoint has them: a ckpt-STEP folder, "
                        "or a checkpoint_dir (its newest step that was not "
                        "abandoned)"},
        {.name = NULL},
};

/** What is printed so far. */
struct output {
    bool json;
    bool begun; /* its object */
    const char *table;
    uint32_t dim;
    uint64_t count;
    uint64_t absent; /* of a checkpoint */
};

/* Nine digits tell every float from its neighbours. */
static void
print_row(uint64_t key, const float *row, uint32_t dim)
{
    printf("%" PRIu64, key);
    for (uint32_t i = 0; i < dim; i++) {
        printf("%c%.9g", i == 0 ? '\t' : ' ', (double)row[i]);
    }
    printf("\n");
}

/* JSON has no word for what is not finite. */
static void
print_json_row(uint64_t key, const float *row, uint32_t dim)
{
    printf("{\"key\":\"%" PRIu64 "\",\"row\":[", key);
    for (uint32_t i = 0; i < dim; i++) {
        if (isfinite(row[i])) {
            printf("%s%.9g", i == 0 ? "" : ",", (double)row[i]);
        } else {
            printf("%snull", i == 0 ? "" : ",");
        }
    }
    printf("]}");
}

static void
begin(struct output *output)
{
    if (output->json && !output->begun) {
        printf("{\"table\":\"%s\",\"dim\":%" PRIu32 ",\"rows\":[",
                output->table, output->dim);
        output->begun = true;
    }
}

static void
print_one(struct output *output, uint64_t key, const float *row)
{
    begin(output);
    if (output->json) {
        printf("%s", output->count > 0 ? "," : "");
        print_json_row(key, row, output->dim);
    } else {
        print_row(key, row, output->dim);
    }
    output->count++;
}

static void
print_rows(struct output *output, const uint64_t *keys, size_t n,
        const float *rows)
{
    for (size_t i = 0; i < n; i++) {
        print_one(output, keys[i], rows + i * output->dim);
    }
}

static void
print_saved(void *context, uint32_t dim, uint64_t key, const float *row,
        bool present)
{
    struct output *output = context;

    output->dim = dim;
    print_one(output, key, row);
    output->absent += present ? 0 : 1;
}

/* The object ends as the one of a running job does. */
static int
lookup_saved(const struct rps_tool_call *call, const struct rps_keys *keys)
{
    struct output output = {
            .json = call->options->json, .table = call->operands[0]};
    const int code = rps_checkpoint_lookup(call->flags[FLAG_CHECKPOINT].value,
            call->operands[0], keys, print_saved, &output);

    if (output.json && (code == RPS_TOOL_OK || output.count > 0)) {
        begin(&output);
        printf("],\"absent\":%" PRIu64 ",\"whole\":%s}\n", output.absent,
                code == RPS_TOOL_OK ? "true" : "false");
        rps_tool_answered();
    }
    return code;
}

static rps_status
read_rows(rps_client *client, rps_embedding_table *table, const uint64_t *keys,
        size_t n, float *rows)
{
    const rps_lookup lookup = {.table = table,
            .keys = keys,
            .key_count = n,
            .flags = RPS_READ_ONLY,
            .rows = rows};
    rps_ticket ticket;
    rps_status status = rps_lookup_start(client, NULL, &lookup, 1, &ticket);

    return status == RPS_OK ? rps_wait(client, ticket, 0) : status;
}

/* A piece at a time: a file of keys may be longer than memory has rows. The
 * object begins when the first rows are here, and then it is ended. */
static rps_status
show(rps_client *client, rps_embedding_table *table,
        const struct rps_keys *keys, struct output *output)
{
    const size_t row_bytes = output->dim * sizeof(float);
    const size_t piece = row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
    float *rows = malloc(piece * row_bytes);
    rps_status status = rows != NULL ? RPS_OK : RPS_E_NOMEM;

    for (size_t at = 0;
            status == RPS_OK && at < keys->count && ferror(stdout) == 0;
            at += piece) {
        const size_t n = keys->count - at < piece ? keys->count - at : piece;

        status = read_rows(client, table, keys->list + at, n, rows);
        if (status == RPS_OK) {
            print_rows(output, keys->list + at, n, rows);
        }
    }
    free(rows);
    if (output->json && (status == RPS_OK || output->count > 0)) {
        begin(output);
        printf("],\"whole\":%s}\n", status == RPS_OK ? "true" : "false");
        rps_tool_answered();
    }
    return status;
}

static int
lookup(const struct rps_tool_call *call, const struct rps_keys *keys)
{
    struct output output = {
            .json = call->options->json, .table = call->operands[0]};
    rps_embedding_table *table = NULL;
    rps_client *client = NULL;
    int code = rps_tool_open(call, "lookup", &client);

    if (code == RPS_TOOL_OK) {
        rps_status status =
                rps_find_embedding_table(client, call->operands[0], &table);

        if (status == RPS_OK) {
            output.dim = rps_embedding_table_spec(table)->dim;
            status = show(client, table, keys, &output);
        }
        code = status == RPS_OK
                       ? RPS_TOOL_OK
                       : rps_tool_client_failed(client, "lookup", status);
    }
    rps_client_close(client);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_keys keys = {.count = 0};
    int code = rps_keys_collect(&keys, call, "lookup");

    if (code == RPS_TOOL_OK) {
        code = call->flags[FLAG_CHECKPOINT].value != NULL
                       ? lookup_saved(call, &keys)
                       : lookup(call, &keys);
    }
    rps_keys_finish(&keys);
    return code;
}

const struct rps_tool rps_tool_lookup = {
        .name = "lookup",
        .usage = usage,
        .summary = "rows of a table by key",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_keys = true,
        .run = run,
};
