/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/top_figures.h"

#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE ((double)NAN)

static const char lookups_word[] = "EMBEDDING_LOOKUP";
static const char pushes_word[] = "PUSH_GRADIENTS";

void
rps_top_look_finish(struct rps_top_look *look)
{
    json_decref(look->stat);
    *look = (struct rps_top_look){.stat = NULL};
}

static double
number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static uint64_t
count(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));

    return value > 0 ? (uint64_t)value : 0;
}

/* ---- percentiles ---- */

static double
count_before(const json_t *buckets, json_int_t from)
{
    const json_t *bucket;
    size_t i;

    json_array_foreach(buckets, i, bucket)
    {
        if (json_integer_value(json_array_get(bucket, 0)) == from) {
            return json_number_value(json_array_get(bucket, 2));
        }
    }
    return 0;
}

static const json_t *
buckets_of(const json_t *stat, const char *opcode)
{
    return json_object_get(
            json_object_get(json_object_get(stat, "times"), opcode), "buckets");
}

/* Requests of this bucket since the look before. */
static double
grown(const json_t *bucket, const json_t *before)
{
    const double n =
            json_number_value(json_array_get(bucket, 2)) -
            count_before(before, json_integer_value(json_array_get(bucket, 0)));

    return n > 0 ? n : 0;
}

double
rps_top_percentile(const json_t *before, const json_t *now, const char *opcode,
        double part)
{
    const json_t *old = buckets_of(before, opcode);
    const json_t *buckets = buckets_of(now, opcode);
    const json_t *bucket;
    double total = 0;
    double below = 0;
    size_t i;

    json_array_foreach(buckets, i, bucket)
    {
        total += grown(bucket, old);
    }
    json_array_foreach(buckets, i, bucket)
    {
        const double n = grown(bucket, old);
        const double from = json_number_value(json_array_get(bucket, 0));
        const double end = json_number_value(json_array_get(bucket, 1));

        if (n > 0 && below + n >= part * total) {
            return end > from ? from + (end - from) * (part * total - below) / n
                              : from; /* the last has no end */
        }
        below += n;
    }
    return NONE;
}

/* ---- rates ---- */

static const struct rps_top_rates no_rates = {.requests = NONE,
        .errors = NONE,
        .lookups = NONE,
        .missing = NONE,
        .updates = NONE,
        .inserted = NONE,
        .evicted = NONE,
        .received = NONE,
        .sent = NONE};

/* Of a counter that may have begun anew. */
static double
rate(const json_t *before, const json_t *now, const char *name, double seconds)
{
    const double more = number(now, name) - number(before, name);

    return more >= 0 ? more / seconds : NONE;
}

/* A figure that is not known adds nothing; none at all stays NaN. */
static void
add(double *sum, double more)
{
    if (!isnan(more)) {
        *sum = isnan(*sum) ? more : *sum + more;
    }
}

static void
add_table_rates(struct rps_top_rates *rates, const json_t *before,
        const json_t *now, double seconds)
{
    add(&rates->lookups, rate(before, now, "lookups", seconds));
    add(&rates->missing, rate(before, now, "missing", seconds));
    add(&rates->updates, rate(before, now, "applied", seconds));
    add(&rates->inserted, rate(before, now, "inserted", seconds));
    add(&rates->evicted, rate(before, now, "evicted_cold", seconds));
    add(&rates->evicted, rate(before, now, "evicted_full", seconds));
}

/* Keys without a row become a part of all keys. */
static void
end_rates(struct rps_top_rates *rates)
{
    rates->missing =
            rates->lookups > 0 ? rates->missing / rates->lookups : NONE;
}

static const json_t *
find_table(const json_t *stat, const char *name)
{
    const json_t *table;
    size_t i;

    json_array_foreach(json_object_get(stat, "tables"), i, table)
    {
        const char *other = json_string_value(json_object_get(table, "name"));

        if (other != NULL && name != NULL && strcmp(other, name) == 0) {
            return table;
        }
    }
    return NULL;
}

static void
add_requests(struct rps_top_rates *rates, const json_t *before,
        const json_t *now, double seconds)
{
    const json_t *old = json_object_get(before, "requests");
    json_t *requests = json_object_get(now, "requests");
    const char *name;
    json_t *entry;

    json_object_foreach(requests, name, entry)
    {
        const json_t *was = json_object_get(old, name);

        add(&rates->requests, rate(was, entry, "count", seconds));
        add(&rates->errors, rate(was, entry, "errors", seconds));
    }
}

/* Two STATs of the same process? */
static bool
is_same(const json_t *before, const json_t *now)
{
    const char *a = json_string_value(json_object_get(before, "incarnation"));
    const char *b = json_string_value(json_object_get(now, "incarnation"));

    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static void
work_out_rates(struct rps_top_rates *rates, const json_t *before,
        const json_t *now, double seconds)
{
    const json_t *table;
    size_t i;

    *rates = (struct rps_top_rates){.requests = 0};
    add_requests(rates, before, now, seconds);
    json_array_foreach(json_object_get(now, "tables"), i, table)
    {
        add_table_rates(rates,
                find_table(before,
                        json_string_value(json_object_get(table, "name"))),
                table, seconds);
    }
    end_rates(rates);
    rates->received = rate(before, now, "received_bytes", seconds);
    rates->sent = rate(before, now, "sent_bytes", seconds);
}

static double
seconds_between(
        const struct rps_top_look *before, const struct rps_top_look *now)
{
    return before->stat != NULL && now->at_ns > before->at_ns &&
                           is_same(before->stat, now->stat)
                   ? (double)(now->at_ns - before->at_ns) / 1e9
                   : NONE;
}

static void
work_out_ps(struct rps_top_ps *ps, const struct rps_top_look *before,
        const struct rps_top_look *now, uint64_t now_ns)
{
    const json_t *stat = now->stat != NULL ? now->stat : before->stat;
    const uint64_t at_ns = now->stat != NULL ? now->at_ns : before->at_ns;
    const double seconds =
            now->stat != NULL ? seconds_between(before, now) : NONE;

    *ps = (struct rps_top_ps){.here = now->stat != NULL,
            .why = now->why,
            .age_ms = stat != NULL ? (now_ns - at_ns) / 1000000 : 0,
            .epoch = count(stat, "epoch"),
            .step = count(stat, "step"),
            .mode = json_string_value(json_object_get(stat, "mode")),
            .connections = count(stat, "connections"),
            .memory_used = count(stat, "memory_used"),
            .memory_limit = count(stat, "memory_limit"),
            .ping_ms = now->stat != NULL ? now->ping_ms : NONE,
            .lookup_p50_ns = NONE,
            .lookup_p99_ns = NONE,
            .push_p99_ns = NONE,
            .rates = no_rates};
    if (!isnan(seconds)) {
        const json_t *old = before->stat;

        work_out_rates(&ps->rates, old, now->stat, seconds);
        ps->lookup_p50_ns =
                rps_top_percentile(old, now->stat, lookups_word, 0.5);
        ps->lookup_p99_ns =
                rps_top_percentile(old, now->stat, lookups_word, 0.99);
        ps->push_p99_ns = rps_top_percentile(old, now->stat, pushes_word, 0.99);
    }
}

/* ---- tables, over all servers ---- */

static struct rps_top_table *
table_of(struct rps_top *top, const json_t *part)
{
    const char *name = json_string_value(json_object_get(part, "name"));
    struct rps_top_table *grown_list;

    for (size_t i = 0; name != NULL && i < top->table_count; i++) {
        if (strcmp(top->tables[i].name, name) == 0) {
            return &top->tables[i];
        }
    }
    grown_list = name == NULL
                         ? NULL
                         : realloc(top->tables, (top->table_count + 1) *
                                                        sizeof(*grown_list));
    if (grown_list == NULL) {
        return NULL;
    }
    top->tables = grown_list;
    grown_list[top->table_count] = (struct rps_top_table){.name = name,
            .dim = count(json_object_get(part, "spec"), "dimension"),
            .rates = no_rates};
    return &grown_list[top->table_count++];
}

static bool
add_tables(struct rps_top *top, const struct rps_top_look *before,
        const struct rps_top_look *now)
{
    const json_t *stat = now->stat != NULL ? now->stat : before->stat;
    const double seconds =
            now->stat != NULL ? seconds_between(before, now) : NONE;
    const json_t *part;
    size_t i;

    json_array_foreach(json_object_get(stat, "tables"), i, part)
    {
        struct rps_top_table *table = table_of(top, part);

        if (table == NULL) {
            return false;
        }
        table->rows += count(part, "rows");
        table->bytes += count(part, "bytes");
        table->memory_limit +=
                count(json_object_get(part, "spec"), "memory_limit");
        add_table_rates(&table->rates, find_table(before->stat, table->name),
                part, seconds);
    }
    return true;
}

static void
add_sum(struct rps_top_rates *sum, const struct rps_top_rates *one)
{
    add(&sum->requests, one->requests);
    add(&sum->errors, one->errors);
    add(&sum->lookups, one->lookups);
    add(&sum->missing, one->missing * one->lookups);
    add(&sum->updates, one->updates);
    add(&sum->inserted, one->inserted);
    add(&sum->evicted, one->evicted);
    add(&sum->received, one->received);
    add(&sum->sent, one->sent);
}

bool
rps_top_work_out(struct rps_top *top, const struct rps_top_look *before,
        const struct rps_top_look *now, uint32_t ps_count, uint64_t now_ns)
{
    bool good = true;

    *top = (struct rps_top){.seconds = NONE,
            .ps = calloc(ps_count, sizeof(*top->ps)),
            .ps_count = ps_count,
            .sum = no_rates};
    for (uint32_t i = 0; good && top->ps != NULL && i < ps_count; i++) {
        work_out_ps(&top->ps[i], &before[i], &now[i], now_ns);
        good = add_tables(top, &before[i], &now[i]);
        if (top->ps[i].here) {
            add_sum(&top->sum, &top->ps[i].rates);
            top->seconds = isnan(top->seconds)
                                   ? seconds_between(&before[i], &now[i])
                                   : top->seconds;
        }
    }
    end_rates(&top->sum);
    for (size_t i = 0; i < top->table_count; i++) {
        end_rates(&top->tables[i].rates);
    }
    return good && top->ps != NULL;
}

void
rps_top_finish(struct rps_top *top)
{
    free(top->ps);
    free(top->tables);
    *top = (struct rps_top){.ps = NULL};
}

/* ---- JSON ---- */

static json_t *
milliseconds(double ns)
{
    return rps_json_real(ns / 1e6);
}

static void
add_rates(json_t *object, const struct rps_top_rates *rates, bool of_a_table)
{
    const struct {
        const char *name;
        double value;
        bool of_a_table;
    } figures[] = {{"requests_per_second", rates->requests, false},
            {"errors_per_second", rates->errors, false},
            {"lookups_per_second", rates->lookups, true},
            {"missing_ratio", rates->missing, true},
            {"updates_per_second", rates->updates, true},
            {"inserted_per_second", rates->inserted, true},
            {"evicted_per_second", rates->evicted, true},
            {"received_bytes_per_second", rates->received, false},
            {"sent_bytes_per_second", rates->sent, false}};

    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        if (!of_a_table || figures[i].of_a_table) {
            json_object_set_new(
                    object, figures[i].name, rps_json_real(figures[i].value));
        }
    }
}

static json_t *
ps_json(const struct rps_top_ps *ps, uint32_t index, const char *address)
{
    json_t *object = json_pack(
            "{s:I, s:s?, s:b, s:I, s:I, s:s?, s:I, s:I, s:I}", "index",
            (json_int_t)index, "address", address, "reached", (int)ps->here,
            "epoch", (json_int_t)ps->epoch, "step", (json_int_t)ps->step,
            "mode", ps->mode, "connections", (json_int_t)ps->connections,
            "memory_used", (json_int_t)ps->memory_used, "memory_limit",
            (json_int_t)ps->memory_limit);

    if (!ps->here) {
        json_object_set_new(object, "error", json_string(ps->why));
    }
    json_object_set_new(object, "ping_ms", rps_json_real(ps->ping_ms));
    json_object_set_new(
            object, "lookup_p50_ms", milliseconds(ps->lookup_p50_ns));
    json_object_set_new(
            object, "lookup_p99_ms", milliseconds(ps->lookup_p99_ns));
    json_object_set_new(object, "push_p99_ms", milliseconds(ps->push_p99_ns));
    add_rates(object, &ps->rates, false);
    return object;
}

static json_t *
table_json(const struct rps_top_table *table)
{
    json_t *object = json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", table->name,
            "dim", (json_int_t)table->dim, "rows", (json_int_t)table->rows,
            "bytes", (json_int_t)table->bytes, "memory_limit",
            (json_int_t)table->memory_limit);

    add_rates(object, &table->rates, true);
    return object;
}

static json_t *
hot_json(const struct rps_top *top)
{
    json_t *keys = json_array();

    for (size_t i = 0; i < top->hot_count; i++) {
        char key[24];

        snprintf(key, sizeof(key), "%" PRIu64, top->hot[i].key);
        json_array_append_new(
                keys, json_pack("{s:s, s:I, s:I}", "key", key, "count",
                              (json_int_t)top->hot[i].count, "error",
                              (json_int_t)top->hot[i].error));
    }
    return json_pack("{s:s?, s:o}", "table", top->hot_table, "keys", keys);
}

json_t *
rps_top_json(const struct rps_top *top, const rps_cluster *cluster)
{
    json_t *servers = json_array();
    json_t *tables = json_array();
    json_t *sum = json_object();

    for (uint32_t i = 0; i < top->ps_count; i++) {
        json_array_append_new(
                servers, ps_json(&top->ps[i], i, cluster->ps[i].address));
    }
    for (size_t i = 0; i < top->table_count; i++) {
        json_array_append_new(tables, table_json(&top->tables[i]));
    }
    add_rates(sum, &top->sum, false);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o*}", "seconds",
            rps_json_real(top->seconds), "ps", servers, "all", sum, "tables",
            tables, "hot", hot_json(top), "workers",
            top->workers != NULL ? rps_top_workers_json(top->workers) : NULL);
}
