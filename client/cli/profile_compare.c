/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps profile compare: the step, the classes, then their parts, those that
 * differ most first. Everything is of one step, so that profiles of different
 * lengths can be compared.
 *
 * Operators of recps and of PyTorch have no names in common: where a side is
 * PyTorch's and the other is not, they meet in families.
 */
#include "client/cli/profile.h"
#include "client/cli/table_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIBE_BYTES 256u

/* The first mark that is in a name names its family. */
static const struct {
    const char *mark;
    const char *family;
} families[] = {
        {"binary_cross_entropy", "loss"},
        {"BinaryCrossEntropy", "loss"},
        {"bce", "loss"},
        {"embedding_bag", "pooling"},
        {"EmbeddingBag", "pooling"},
        {"pooling", "pooling"},
        {"dots", "interaction"},
        {"aten::bmm", "interaction"},
        {"BmmBackward", "interaction"},
        {"aten::tril_indices", "interaction"},
        {"concat", "concat"},
        {"aten::cat", "concat"},
        {"CatBackward", "concat"},
        {"linear", "linear"},
        {"aten::addmm", "linear"},
        {"aten::mm", "linear"},
        {"aten::matmul", "linear"},
        {"AddmmBackward", "linear"},
        {"MmBackward", "linear"},
        {"relu", "activation"},
        {"Relu", "activation"},
        {"gelu", "activation"},
        {"Gelu", "activation"},
        {"sigmoid", "activation"},
        {"Sigmoid", "activation"},
        {"tanh", "activation"},
        {"Tanh", "activation"},
        {"threshold_backward", "activation"},
        {"clamp_min", "activation"},
        {"dropout", "dropout"},
        {"Optimizer.", "optimizer"},
        {"adam", "optimizer"},
        {"sgd", "optimizer"},
};

static const char *
family_of(const char *name)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strstr(name, families[i].mark) != NULL) {
            return families[i].family;
        }
    }
    return "other";
}

/* A part of both sides; ns and counts of one step. */
struct pair {
    enum rps_profile_class class;
    const char *name;
    double ns[2];
    double count[2];
};

struct comparing {
    const struct rps_profile_side *sides[2];
    bool by_family;
    struct pair *pairs; /* [count] by class, those that differ most first */
    size_t count;
};

/* --- pairs --------------------------------------------------------------- */

static int
by_class_and_name(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    if (x->class != y->class) {
        return x->class < y->class ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int
by_class_and_difference(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    const double dx = fabs(x->ns[1] - x->ns[0]);
    const double dy = fabs(y->ns[1] - y->ns[0]);

    if (x->class == y->class && dx != dy) {
        return dx > dy ? -1 : 1;
    }
    return by_class_and_name(a, b);
}

static void
add_side(struct comparing *comparing, int which)
{
    const struct rps_profile_side *side = comparing->sides[which];

    for (size_t i = 0; i < side->row_count; i++) {
        const struct rps_profile_row *row = &side->rows[i];
        struct pair *pair = &comparing->pairs[comparing->count++];

        *pair = (struct pair){.class = row->class, .name = row->name};
        if (comparing->by_family && row->class == RPS_PROFILE_OPERATOR) {
            pair->name = family_of(row->name);
        }
        pair->ns[which] = rps_profile_a_step(side, row->self_ns);
        pair->count[which] = rps_profile_a_step(side, row->count);
    }
}

static void
join_pairs(struct comparing *comparing)
{
    struct pair *pairs = comparing->pairs;
    size_t kept = 0;

    qsort(pairs, comparing->count, sizeof(*pairs), by_class_and_name);
    for (size_t i = 1; i < comparing->count; i++) {
        if (by_class_and_name(&pairs[kept], &pairs[i]) != 0) {
            pairs[++kept] = pairs[i];
            continue;
        }
        for (int which = 0; which < 2; which++) {
            pairs[kept].ns[which] += pairs[i].ns[which];
            pairs[kept].count[which] += pairs[i].count[which];
        }
    }
    comparing->count = kept + 1;
    qsort(pairs, comparing->count, sizeof(*pairs), by_class_and_difference);
}

/* --- for people ---------------------------------------------------------- */

static void
print_numbers(struct rps_table_print *print, double a, double b)
{
    rps_table_print_cell(print, "%.3f", a * 1e-6);
    rps_table_print_cell(print, "%.3f", b * 1e-6);
    rps_table_print_cell(print, "%+.3f", (b - a) * 1e-6);
    if (a > 0.0) {
        rps_table_print_cell(print, "%.2f", b / a);
    } else {
        rps_table_print_cell(print, "-");
    }
}

static bool
print_classes(const struct comparing *comparing)
{
    const struct rps_profile_side *a = comparing->sides[0];
    const struct rps_profile_side *b = comparing->sides[1];
    struct rps_table_print print = {.columns = 5,
            .titles = {"ms a step: A", "B", "B - A", "B / A", "class"},
            .right = {true, true, true, true, false}};

    print_numbers(&print, rps_profile_a_step(a, a->steps.ns),
            rps_profile_a_step(b, b->steps.ns));
    rps_table_print_cell(&print, "a step, end to end");
    for (int c = 0; c < RPS_PROFILE_CLASSES; c++) {
        const enum rps_profile_class class = (enum rps_profile_class)c;

        print_numbers(&print,
                rps_profile_a_step(a, rps_profile_class_ns(a, class, NULL)),
                rps_profile_a_step(b, rps_profile_class_ns(b, class, NULL)));
        rps_table_print_cell(&print, "%s", rps_profile_class_name(class));
    }
    return rps_table_print_end(&print);
}

static bool
print_parts(const struct comparing *comparing, enum rps_profile_class class,
        uint64_t top)
{
    struct rps_table_print print = {.columns = 7,
            .titles = {"ms a step: A", "B", "B - A", "B / A", "calls: A", "B",
                    rps_profile_class_name(class)},
            .right = {true, true, true, true, true, true, false}};
    uint64_t all = 0;

    for (size_t i = 0; i < comparing->count; i++) {
        const struct pair *pair = &comparing->pairs[i];

        if (pair->class == class && all++ < top) {
            print_numbers(&print, pair->ns[0], pair->ns[1]);
            rps_table_print_cell(&print, "%.1f", pair->count[0]);
            rps_table_print_cell(&print, "%.1f", pair->count[1]);
            rps_table_print_cell(&print, "%s", pair->name);
        }
    }
    if (all == 0) {
        return true;
    }
    printf("\n");
    if (!rps_table_print_end(&print)) {
        return false;
    }
    if (all > top) {
        printf("%" PRIu64 " more: --top %" PRIu64 "\n", all - top, all);
    }
    return true;
}

static int
print_text(const struct comparing *comparing, uint64_t top)
{
    char words[DESCRIBE_BYTES];
    bool good;

    for (int which = 0; which < 2; which++) {
        printf("%c: %s: %s\n", 'A' + which, comparing->sides[which]->path,
                rps_profile_describe(
                        comparing->sides[which], words, sizeof(words)));
    }
    printf("\n");
    good = print_classes(comparing);
    for (int c = 0; good && c < RPS_PROFILE_CLASSES; c++) {
        good = print_parts(comparing, (enum rps_profile_class)c, top);
    }
    return good ? RPS_TOOL_OK
                : rps_tool_fail(RPS_TOOL_FAILED, "profile", "no memory");
}

/* --- for programs -------------------------------------------------------- */

/* {"a_us", "b_us", "difference_us", "ratio"} */
static json_t *
numbers_json(double a, double b)
{
    return json_pack("{s:f, s:f, s:f, s:o}", "a_us", a * 1e-3, "b_us", b * 1e-3,
            "difference_us", (b - a) * 1e-3, "ratio",
            a > 0.0 ? json_real(b / a) : json_null());
}

static json_t *
parts_json(const struct comparing *comparing, enum rps_profile_class class,
        uint64_t top)
{
    json_t *parts = json_array();
    uint64_t all = 0;

    for (size_t i = 0; i < comparing->count; i++) {
        const struct pair *pair = &comparing->pairs[i];

        if (pair->class == class && all++ < top) {
            json_t *part = numbers_json(pair->ns[0], pair->ns[1]);

            json_object_set_new(part, "name", json_string(pair->name));
            json_object_set_new(part, "a_calls", json_real(pair->count[0]));
            json_object_set_new(part, "b_calls", json_real(pair->count[1]));
            json_array_append_new(parts, part);
        }
    }
    return parts;
}

static json_t *
to_json(const struct comparing *comparing, uint64_t top)
{
    const struct rps_profile_side *a = comparing->sides[0];
    const struct rps_profile_side *b = comparing->sides[1];
    json_t *classes = json_object();

    for (int c = 0; c < RPS_PROFILE_CLASSES; c++) {
        const enum rps_profile_class class = (enum rps_profile_class)c;
        json_t *numbers = numbers_json(
                rps_profile_a_step(a, rps_profile_class_ns(a, class, NULL)),
                rps_profile_a_step(b, rps_profile_class_ns(b, class, NULL)));

        json_object_set_new(
                numbers, "parts", parts_json(comparing, class, top));
        json_object_set_new(classes, rps_profile_class_name(class), numbers);
    }
    return json_pack("{s:o, s:o, s:o, s:b, s:o}", "a", rps_profile_side_json(a),
            "b", rps_profile_side_json(b), "step",
            numbers_json(rps_profile_a_step(a, a->steps.ns),
                    rps_profile_a_step(b, b->steps.ns)),
            "families", (int)comparing->by_family, "classes", classes);
}

int
rps_profile_compare(const struct rps_profile_side *a,
        const struct rps_profile_side *b, uint64_t top, bool json)
{
    struct comparing comparing = {.sides = {a, b},
            .by_family = a->info.is_torch != b->info.is_torch,
            .pairs = calloc(
                    a->row_count + b->row_count, sizeof(*comparing.pairs))};
    int code;

    if (comparing.pairs == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "profile", "no memory");
    }
    add_side(&comparing, 0);
    add_side(&comparing, 1);
    join_pairs(&comparing);
    code = json ? rps_tool_print_json(to_json(&comparing, top))
                : print_text(&comparing, top);
    free(comparing.pairs);
    return code;
}
