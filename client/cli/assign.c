/* SPDX-License-Identifier: Apache-2.0 */
/* recps assign: write rows of a running job's table as they are. */
#include "base/text.h"
#include "client/cli/key.h"
#include "client/cli/tool.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 65536u /* rows of a request */
#define GAPS  " \t\r\n,"

static const char usage[] =
        "usage: recps assign [--json] TABLE KEY VALUE... [OPTION]...\n"
        "       recps assign [--json] TABLE --file FILE [OPTION]...\n"
        "\n"
        "Write the row of a key as it is: as many VALUEs as the table has\n"
        "dimensions. A row that is not there is made; the optimizer's state "
        "of\n"
        "it begins anew. Every value is read before anything is written.\n";

static struct rps_tool_flag flags[] = {
        {.name = "file",
                .argument = "FILE",
                .help = "take a row a line from this file, KEY VALUE..., "
                        "separated by blanks or commas, as `recps lookup` "
                        "prints them; - is the standard input"},
        {.name = NULL},
};

struct rows {
    uint32_t dim;
    uint64_t *keys; /* [room], owned */
    float *values;  /* [room][dim], owned */
    size_t count;
    size_t room;
};

static bool
make_room(struct rows *rows)
{
    const size_t room = rows->room == 0 ? 1024 : 2 * rows->room;
    uint64_t *keys;
    float *values;

    if (rows->count < rows->room) {
        return true;
    }
    keys = realloc(rows->keys, room * sizeof(*keys));
    rows->keys = keys != NULL ? keys : rows->keys;
    values = realloc(rows->values, room * rows->dim * sizeof(*values));
    rows->values = values != NULL ? values : rows->values;
    if (keys == NULL || values == NULL) {
        return false;
    }
    rows->room = room;
    return true;
}

/* `where` is "" or "FILE:LINE: ". */
static int
add_key(struct rows *rows, const char *where, const char *word)
{
    if (!make_room(rows)) {
        return rps_tool_fail(RPS_TOOL_FAILED, "assign", "no memory");
    }
    if (!rps_key_parse(word, &rows->keys[rows->count])) {
        return rps_tool_fail(RPS_TOOL_USAGE, "assign",
                "%s\"%s\" is no key: a 64-bit number, decimal or 0x hex", where,
                word);
    }
    return RPS_TOOL_OK;
}

static int
add_value(struct rows *rows, const char *where, const char *word, uint32_t at)
{
    double value = 0;

    if (!rps_parse_double(word, &value) || value > (double)FLT_MAX ||
            value < -(double)FLT_MAX) {
        return rps_tool_fail(RPS_TOOL_USAGE, "assign",
                "%s\"%s\" is no value: a finite 32-bit number", where, word);
    }
    if (at < rows->dim) {
        rows->values[rows->count * rows->dim + at] = (float)value;
    }
    return RPS_TOOL_OK;
}

/* A row is whole: as many values as the table asks for. */
static int
end_row(struct rows *rows, const char *table, const char *where, uint32_t found)
{
    if (found != rows->dim) {
        return rps_tool_fail(RPS_TOOL_USAGE, "assign",
                "%skey %" PRIu64 " has %" PRIu32
                " values; a row of table %s has %" PRIu32,
                where, rows->keys[rows->count], found, table, rows->dim);
    }
    rows->count++;
    return RPS_TOOL_OK;
}

static int
read_line(struct rows *rows, const char *table, const char *where, char *line)
{
    char *next = NULL;
    char *word = strtok_r(line, GAPS, &next);
    uint32_t found = 0;
    int code;

    if (word == NULL) {
        return RPS_TOOL_OK; /* an empty line */
    }
    code = add_key(rows, where, word);
    for (word = strtok_r(NULL, GAPS, &next);
            code == RPS_TOOL_OK && word != NULL;
            word = strtok_r(NULL, GAPS, &next)) {
        code = add_value(rows, where, word, found++);
    }
    return code == RPS_TOOL_OK ? end_row(rows, table, where, found) : code;
}

static int
read_lines(struct rows *rows, const char *table, FILE *file, const char *path)
{
    char *line = NULL;
    size_t bytes = 0;
    unsigned long number = 0;
    int code = RPS_TOOL_OK;

    while (code == RPS_TOOL_OK && getline(&line, &bytes, file) >= 0) {
        char where[256];

        snprintf(where, sizeof(where), "%.200s:%lu: ", path, ++number);
        code = read_line(rows, table, where, line);
    }
    free(line);
    if (code == RPS_TOOL_OK && ferror(file) != 0) {
        code = rps_tool_fail(RPS_TOOL_NOINPUT, "assign",
                "%s: cannot be read: %s", path, strerror(errno));
    }
    return code;
}

static int
read_file(struct rows *rows, const char *table, const char *path)
{
    FILE *file;
    int code;

    if (strcmp(path, "-") == 0) {
        return read_lines(rows, table, stdin, "standard input");
    }
    file = fopen(path, "re");
    if (file == NULL) {
        return rps_tool_fail(
                RPS_TOOL_NOINPUT, "assign", "%s: %s", path, strerror(errno));
    }
    code = read_lines(rows, table, file, path);
    fclose(file);
    return code;
}

static int
read_operands(struct rows *rows, const struct rps_tool_call *call)
{
    int code = add_key(rows, "", call->operands[1]);
    uint32_t found = 0;

    for (int i = 2; code == RPS_TOOL_OK && i < call->operand_count; i++) {
        code = add_value(rows, "", call->operands[i], found++);
    }
    return code == RPS_TOOL_OK ? end_row(rows, call->operands[0], "", found)
                               : code;
}

/* *done_out counts the rows of the pieces that were written whole. */
static rps_status
write_rows(rps_client *client, rps_embedding_table *table,
        const struct rows *rows, size_t *done_out)
{
    rps_status status = RPS_OK;
    size_t at = 0;

    while (status == RPS_OK && at < rows->count) {
        const size_t left = rows->count - at;
        const rps_assign assign = {.table = table,
                .keys = rows->keys + at,
                .key_count = left < PIECE ? left : PIECE,
                .rows = rows->values + at * rows->dim};

        status = rps_assign_rows(client, &assign);
        if (status == RPS_OK) {
            at += assign.key_count;
        }
    }
    *done_out = at;
    return status;
}

static int
answer(const struct rps_tool_call *call, const struct rows *rows)
{
    if (call->options->json) {
        return rps_tool_print_json(json_pack("{s:s, s:I}", "table",
                call->operands[0], "rows", (json_int_t)rows->count));
    }
    printf("table %s: %zu row%s written\n", call->operands[0], rows->count,
            rows->count == 1 ? "" : "s");
    return RPS_TOOL_OK;
}

static int
assign(const struct rps_tool_call *call, rps_client *client,
        rps_embedding_table *table, struct rows *rows)
{
    const char *path = call->flags[0].value;
    size_t done = 0;
    rps_status status;
    int code = path != NULL ? read_file(rows, call->operands[0], path)
                            : read_operands(rows, call);

    if (code != RPS_TOOL_OK) {
        return code;
    }
    status = write_rows(client, table, rows, &done);
    if (status == RPS_OK) {
        return answer(call, rows);
    }
    return rps_tool_fail_status("assign", status,
            "%s (%s); of %zu rows the first %zu are written, of those behind "
            "them some may be: repeating it is safe",
            rps_client_error(client), rps_status_str(status), rows->count,
            done);
}

static int
run(const struct rps_tool_call *call)
{
    const bool from_file = call->flags[0].value != NULL;
    rps_embedding_table *table = NULL;
    struct rows rows = {.count = 0};
    rps_client *client = NULL;
    rps_status status;
    int code;

    if (from_file ? call->operand_count != 1 : call->operand_count < 3) {
        return rps_tool_fail(RPS_TOOL_USAGE, "assign",
                "give the table, and either a key with its values or --file");
    }
    code = rps_tool_open(call, "assign", &client);
    if (code != RPS_TOOL_OK) {
        return code;
    }
    status = rps_find_embedding_table(client, call->operands[0], &table);
    if (status != RPS_OK) {
        code = rps_tool_client_failed(client, "assign", status);
    } else {
        rows.dim = rps_embedding_table_spec(table)->dim;
        code = assign(call, client, table, &rows);
    }
    free(rows.keys);
    free(rows.values);
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_assign = {
        .name = "assign",
        .usage = usage,
        .summary = "write rows of a table",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_keys = true,
        .run = run,
};
