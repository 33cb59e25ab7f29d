/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/layout.h"

#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/values.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_FORMAT "%012" PRIu64

static struct rps_ckpt_column *
add_column(struct rps_ckpt_column *columns, uint32_t *count,
        enum rps_ckpt_kind kind, const char *suffix, const char *dtype)
{
    assert(*count < RPS_CKPT_COLUMNS_MAX);
    struct rps_ckpt_column *column = &columns[(*count)++];

    memset(column, 0, sizeof(*column));
    column->kind = kind;
    snprintf(column->suffix, sizeof(column->suffix), "%s", suffix);
    snprintf(column->dtype, sizeof(column->dtype), "%s", dtype);
    column->item_bytes = (uint32_t)(dtype[2] - '0');
    return column;
}

uint32_t
rps_ckpt_columns(const rps_table_spec *spec, struct rps_ckpt_column *columns)
{
    uint32_t slots = rps_spec_slot_count(spec);
    uint32_t offset = 0;
    uint32_t count = 0;

    assert(slots + 4 <= RPS_CKPT_COLUMNS_MAX);
    add_column(columns, &count, RPS_CKPT_KEYS, "keys", "<u8");
    add_column(columns, &count, RPS_CKPT_ROWS, "rows",
            rps_ckpt_value_dtype(spec->value_dtype))
            ->width = spec->dim;
    for (uint32_t i = 0; i < slots; i++) {
        char suffix[64];
        struct rps_ckpt_column *column;

        snprintf(
                suffix, sizeof(suffix), "slot-%s", rps_spec_slot_name(spec, i));
        column = add_column(columns, &count, RPS_CKPT_SLOT, suffix, "<f4");
        column->slot_offset = offset;
        column->width = rps_spec_slot_width(spec, i);
        offset += column->width;
    }
    assert(offset == rps_spec_slot_floats(spec));
    add_column(columns, &count, RPS_CKPT_USES, "uses", "|u1");
    add_column(columns, &count, RPS_CKPT_LAST, "last", "<u4");
    return count;
}

size_t
rps_ckpt_column_bytes(const struct rps_ckpt_column *column)
{
    uint32_t width = column->width == 0 ? 1 : column->width;

    return (size_t)width * column->item_bytes;
}

char *
rps_checkpoint_path(const char *dir, uint64_t step)
{
    return rps_format("%s/ckpt-" STEP_FORMAT, dir, step);
}

char *
rps_ckpt_tmp_path(const char *dir, uint64_t step, uint32_t epoch)
{
    return rps_format("%s/" RPS_CKPT_TMP_PREFIX STEP_FORMAT "-%" PRIu32, dir,
            step, epoch);
}

char *
rps_ckpt_old_path(const char *dir, uint64_t step, uint32_t epoch)
{
    return rps_format("%s/" RPS_CKPT_OLD_PREFIX STEP_FORMAT "-%" PRIu32, dir,
            step, epoch);
}

char *
rps_ckpt_part_name(uint32_t part, uint32_t parts)
{
    return rps_format("part-%" PRIu32 "-of-%" PRIu32 ".json", part, parts);
}

void
rps_ckpt_name_another(struct rps_error *error, uint32_t part, uint32_t parts)
{
    const size_t used = error == NULL ? 0 : strlen(error->text);

    if (error != NULL) {
        (void)snprintf(error->text + used, sizeof(error->text) - used,
                "; part-%" PRIu32 "-of-%" PRIu32 ".json cannot be read either",
                part, parts);
    }
}

char *
rps_ckpt_lanes_name(uint32_t part, uint32_t parts)
{
    return rps_format("lanes-%" PRIu32 "-of-%" PRIu32 ".npy", part, parts);
}

char *
rps_ckpt_column_name(const char *table, uint32_t part, uint32_t parts,
        const struct rps_ckpt_column *column)
{
    return rps_format("table-%s/%" PRIu32 "-of-%" PRIu32 ".%s.npy", table, part,
            parts, column->suffix);
}

char *
rps_ckpt_admission_name(const char *table, uint32_t part, uint32_t parts)
{
    return rps_format("table-%s/%" PRIu32 "-of-%" PRIu32 ".admission.npy",
            table, part, parts);
}

char *
rps_ckpt_erased_name(const char *table, uint32_t part, uint32_t parts)
{
    return rps_format("table-%s/%" PRIu32 "-of-%" PRIu32 ".erased.npy", table,
            part, parts);
}

/* Digits up to `end`, written as STEP_FORMAT would. */
static bool
parse_step(const char *digits, size_t n, uint64_t *step)
{
    char text[24];
    char again[24];

    if (n < 12 || n >= sizeof(text)) {
        return false;
    }
    memcpy(text, digits, n);
    text[n] = '\0';
    if (strspn(text, "0123456789") != n || !rps_parse_u64(text, step)) {
        return false;
    }
    snprintf(again, sizeof(again), STEP_FORMAT, *step);
    return strcmp(text, again) == 0;
}

bool
rps_ckpt_parse_step(const char *name, uint64_t *step)
{
    return strncmp(name, "ckpt-", 5) == 0 &&
           parse_step(name + 5, strlen(name + 5), step);
}

bool
rps_ckpt_parse_hidden(
        const char *name, const char *prefix, uint64_t *step, uint32_t *epoch)
{
    const char *digits = name + strlen(prefix);
    const char *dash;
    uint64_t value;

    if (strncmp(name, prefix, strlen(prefix)) != 0) {
        return false;
    }
    dash = strchr(digits, '-');
    if (dash == NULL || strlen(dash + 1) == 0 ||
            strspn(dash + 1, "0123456789") != strlen(dash + 1) ||
            !rps_parse_u64(dash + 1, &value) || value > UINT32_MAX) {
        return false;
    }
    *epoch = (uint32_t)value;
    return parse_step(digits, (size_t)(dash - digits), step);
}

static bool
component_is_plain(const char *name, size_t n)
{
    if (n == 0 || n > RPS_CKPT_NAME_BYTES_MAX || name[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = name[i];

        if ((c < '0' || c > '9') && (c < 'a' || c > 'z') &&
                (c < 'A' || c > 'Z') && c != '_' && c != '.' && c != '-') {
            return false;
        }
    }
    return true;
}

bool
rps_ckpt_name_is_plain(const char *name)
{
    const char *slash = strchr(name, '/');

    if (slash == NULL) {
        return component_is_plain(name, strlen(name));
    }
    return strncmp(name, "table-", 6) == 0 &&
           component_is_plain(name, (size_t)(slash - name)) &&
           component_is_plain(slash + 1, strlen(slash + 1));
}

void
rps_ckpt_part_slots(
        uint32_t part, uint32_t parts, uint32_t *first, uint32_t *last)
{
    assert(parts >= 1 && parts <= RPS_SLOT_COUNT && part < parts);
    /* slot s is part floor(s * parts / 4096)'s */
    *first = (part * RPS_SLOT_COUNT + parts - 1) / parts;
    *last = ((part + 1) * RPS_SLOT_COUNT + parts - 1) / parts - 1;
}

rps_status
rps_ckpt_id_check(const struct rps_checkpoint_id *id, struct rps_error *error)
{
    if (id->dir == NULL || id->dir[0] == '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "no checkpoint_dir is set: nothing can be saved");
    }
    if (id->parts == 0 || id->parts > RPS_SLOT_COUNT || id->part >= id->parts ||
            id->step > INT64_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "checkpoint of step %" PRIu64 ": part %" PRIu32 " of %" PRIu32
                " is none",
                id->step, id->part, id->parts);
    }
    return RPS_OK;
}
