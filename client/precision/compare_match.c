/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operators meet: by the mapping file, by type, name and how often they
 * ran, and a fused one with the parts that its `holds` names. A part's name is
 * PART/TYPE, "top.2/bias", as the fused one's, "top.2/linear_relu".
 */
#include "client/precision/clean.h"
#include "client/precision/compare_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 8u /* of `holds` */

static const char between[] = " + ";

struct side {
    const struct rps_dumped *dumped;
    const struct rps_dumped_operator **by_name; /* sorted */
    const struct rps_dumped_operator **by_part; /* sorted */
    bool *used;                                 /* by place in dumped */
    uint64_t *order; /* of the match that has it, by place in dumped */
};

struct matching {
    struct side left, right;
    const struct rps_compare_map *map; /* NULL: none */
    struct rps_compare_matches *matches;
    bool failed; /* no memory */
};

/* --- sorted operators ---------------------------------------------------- */

static int
order_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int
by_name(const void *a, const void *b)
{
    const struct rps_dumped_operator *x =
            *(const struct rps_dumped_operator *const *)a;
    const struct rps_dumped_operator *y =
            *(const struct rps_dumped_operator *const *)b;
    int order = strcmp(x->clean, y->clean);

    order = order != 0 ? order : strcmp(x->type, y->type);
    return order != 0 ? order : order_u64(x->occurrence, y->occurrence);
}

/* Bytes of PART in its clean name, with the '_' behind it. */
static size_t
part_of(const struct rps_dumped_operator *op)
{
    const size_t name = strlen(op->clean);
    const size_t type = strlen(op->type);

    return name >= type && strcmp(op->clean + name - type, op->type) == 0
                   ? name - type
                   : name;
}

static int
order_parts(const struct rps_dumped_operator *x,
        const struct rps_dumped_operator *y)
{
    const size_t a = part_of(x), b = part_of(y);
    const int order = memcmp(x->clean, y->clean, a < b ? a : b);

    return order != 0 ? order : order_u64(a, b);
}

static int
by_part(const void *a, const void *b)
{
    const struct rps_dumped_operator *x =
            *(const struct rps_dumped_operator *const *)a;
    const struct rps_dumped_operator *y =
            *(const struct rps_dumped_operator *const *)b;
    const int order = order_parts(x, y);

    return order != 0 ? order : x < y ? -1 : x > y;
}

static bool
side_init(struct side *side, const struct rps_dumped *dumped)
{
    const uint32_t count = dumped->operator_count;

    *side = (struct side){.dumped = dumped};
    side->by_name = calloc(count + 1, sizeof(*side->by_name));
    side->by_part = calloc(count + 1, sizeof(*side->by_part));
    side->used = calloc(count + 1, sizeof(*side->used));
    side->order = calloc(count + 1, sizeof(*side->order));
    if (side->by_name == NULL || side->by_part == NULL || side->used == NULL ||
            side->order == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        side->by_name[i] = side->by_part[i] = &dumped->operators[i];
    }
    qsort(side->by_name, count, sizeof(*side->by_name), by_name);
    qsort(side->by_part, count, sizeof(*side->by_part), by_part);
    return true;
}

static void
side_finish(struct side *side)
{
    free(side->by_name);
    free(side->by_part);
    free(side->used);
    free(side->order);
}

static uint32_t
place_of(const struct side *side, const struct rps_dumped_operator *op)
{
    return (uint32_t)(op - side->dumped->operators);
}

static const struct rps_dumped_operator *
find_same(const struct side *side, const struct rps_dumped_operator *op)
{
    const struct rps_dumped_operator **found = bsearch(&op, side->by_name,
            side->dumped->operator_count, sizeof(*side->by_name), by_name);

    return found != NULL && !side->used[place_of(side, *found)] ? *found : NULL;
}

/* Where PART of `op` begins in by_part, which has `count`. */
static uint32_t
lower_bound(const struct side *side, const struct rps_dumped_operator *op)
{
    uint32_t low = 0, high = side->dumped->operator_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (order_parts(side->by_part[middle], op) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* --- matches ------------------------------------------------------------- */

static bool
copy_operators(const struct rps_dumped_operator ***to, uint32_t *to_count,
        const struct rps_dumped_operator *const *from, uint32_t count)
{
    *to = calloc(count + 1, sizeof(**to));
    if (*to == NULL) {
        return false;
    }
    memcpy(*to, from, count * sizeof(**to));
    *to_count = count;
    return true;
}

/* Both lists by time; the order is that of the last on the left. */
static void
add_match(struct matching *matching,
        const struct rps_dumped_operator *const *left, uint32_t left_count,
        const struct rps_dumped_operator *const *right, uint32_t right_count,
        const struct rps_compare_map_pair *mapped)
{
    struct rps_compare_match *match =
            &matching->matches->list[matching->matches->count++];

    match->mapped = mapped;
    match->order = left_count > 0
                           ? place_of(&matching->left, left[left_count - 1])
                           : UINT64_MAX; /* given later */
    if (!copy_operators(&match->left, &match->left_count, left, left_count) ||
            !copy_operators(
                    &match->right, &match->right_count, right, right_count)) {
        matching->failed = true;
    }
    for (uint32_t i = 0; i < left_count; i++) {
        matching->left.used[place_of(&matching->left, left[i])] = true;
    }
    for (uint32_t i = 0; i < right_count; i++) {
        const uint32_t place = place_of(&matching->right, right[i]);

        matching->right.used[place] = true;
        matching->right.order[place] = match->order;
    }
}

/* "dbias" is the type "linear_dbias", "loss" is "bce_loss". */
static bool
is_word(const char *type, const char *word, size_t length)
{
    const size_t whole = strlen(type);

    return whole >= length &&
           strncmp(type + whole - length, word, length) == 0 &&
           (whole == length || type[whole - length - 1] == '_');
}

/* The part that a word of `holds` names, which ran as often as `fused`. */
static const struct rps_dumped_operator *
find_word(const struct side *side, const struct rps_dumped_operator *fused,
        const char *word, size_t length)
{
    const struct rps_dumped_operator *found = NULL;

    for (uint32_t i = lower_bound(side, fused);
            i < side->dumped->operator_count &&
            order_parts(side->by_part[i], fused) == 0;
            i++) {
        const struct rps_dumped_operator *op = side->by_part[i];

        if (op->holds == NULL && op->occurrence == fused->occurrence &&
                !side->used[place_of(side, op)] &&
                is_word(op->type, word, length) &&
                (found == NULL || strlen(op->type) == length)) {
            found = op;
        }
    }
    return found;
}

static int
by_place(const void *a, const void *b)
{
    const struct rps_dumped_operator *x =
            *(const struct rps_dumped_operator *const *)a;
    const struct rps_dumped_operator *y =
            *(const struct rps_dumped_operator *const *)b;

    return x < y ? -1 : x > y;
}

/* All parts of a fused one on the other side, by time; 0: not all are there. */
static uint32_t
find_parts(const struct side *side, const struct rps_dumped_operator *fused,
        const struct rps_dumped_operator *parts[WORDS_MAX])
{
    const char *word = fused->holds;
    uint32_t count = 0;

    while (word != NULL) {
        const char *end = strstr(word, between);
        const size_t length = end != NULL ? (size_t)(end - word) : strlen(word);

        if (count == WORDS_MAX) {
            return 0;
        }
        parts[count] = find_word(side, fused, word, length);
        if (parts[count++] == NULL) {
            return 0;
        }
        word = end != NULL ? end + strlen(between) : NULL;
    }
    qsort(parts, count, sizeof(*parts), by_place);
    return count;
}

static void
match_map(struct matching *matching)
{
    const struct rps_dumped *left = matching->left.dumped;
    const struct rps_dumped *right = matching->right.dumped;

    if (matching->map == NULL) {
        return;
    }
    for (uint32_t i = 0; i < left->operator_count; i++) {
        const struct rps_dumped_operator *l = &left->operators[i];

        for (uint32_t k = 0; k < right->operator_count; k++) {
            const struct rps_dumped_operator *r = &right->operators[k];
            const struct rps_compare_map_pair *pair =
                    matching->right.used[k] || r->occurrence != l->occurrence
                            ? NULL
                            : rps_compare_map_find(matching->map, l, r);

            if (pair != NULL) {
                add_match(matching, &l, 1, &r, 1, pair);
                break;
            }
        }
    }
}

/* Fused ones of a side that are parts on the other. */
static void
match_fused(struct matching *matching, struct side *fused_side,
        struct side *parts_side)
{
    const struct rps_dumped_operator *parts[WORDS_MAX];
    const bool fused_left = fused_side == &matching->left;

    for (uint32_t i = 0; i < fused_side->dumped->operator_count; i++) {
        const struct rps_dumped_operator *op =
                &fused_side->dumped->operators[i];
        const struct rps_dumped_operator *same =
                op->holds != NULL ? find_same(parts_side, op) : NULL;
        uint32_t count = 0;

        if (op->holds != NULL && !fused_side->used[i] &&
                (same == NULL || same->holds == NULL)) {
            count = find_parts(parts_side, op, parts);
        }
        if (count > 1 && fused_left) {
            add_match(matching, &op, 1, parts, count, NULL);
        } else if (count > 1) {
            add_match(matching, parts, count, &op, 1, NULL);
        }
    }
}

static void
match_names(struct matching *matching)
{
    const struct rps_dumped *left = matching->left.dumped;

    for (uint32_t i = 0; i < left->operator_count; i++) {
        const struct rps_dumped_operator *l = &left->operators[i];
        const struct rps_dumped_operator *r =
                matching->left.used[i] ? NULL : find_same(&matching->right, l);

        if (!matching->left.used[i]) {
            add_match(matching, &l, 1, &r, r != NULL ? 1 : 0, NULL);
        }
    }
}

/* Of the right side alone: each stands behind the one before it there. */
static void
add_rest(struct matching *matching)
{
    const struct rps_dumped *right = matching->right.dumped;
    uint64_t order = 0;

    for (uint32_t i = 0; i < right->operator_count; i++) {
        const struct rps_dumped_operator *r = &right->operators[i];

        if (matching->right.used[i]) {
            order = matching->right.order[i];
        } else {
            add_match(matching, NULL, 0, &r, 1, NULL);
            matching->matches->list[matching->matches->count - 1].order = order;
        }
    }
}

static int
by_order(const void *a, const void *b)
{
    const struct rps_compare_match *x = a, *y = b;
    const int order = order_u64(x->order, y->order);

    if (order != 0) {
        return order;
    }
    if (x->left_count == 0 && y->left_count == 0) {
        return by_place(&x->right[0], &y->right[0]);
    }
    return x->left_count == 0 ? 1 : -1;
}

rps_status
rps_compare_match(const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compare_map *map, struct rps_compare_matches *matches,
        struct rps_error *error)
{
    struct matching matching = {.map = map, .matches = matches};
    const size_t most =
            (size_t)left->operator_count + right->operator_count + 1;
    const bool left_good = side_init(&matching.left, left);
    const bool right_good = side_init(&matching.right, right);

    *matches = (struct rps_compare_matches){
            .list = calloc(most, sizeof(*matches->list))};
    matching.failed = matches->list == NULL || !left_good || !right_good;
    if (!matching.failed) {
        match_map(&matching);
        match_fused(&matching, &matching.left, &matching.right);
        match_fused(&matching, &matching.right, &matching.left);
        match_names(&matching);
        add_rest(&matching);
    }
    side_finish(&matching.left);
    side_finish(&matching.right);
    if (matching.failed) {
        rps_compare_matches_finish(matches);
        return rps_fail(
                error, RPS_E_NOMEM, "no memory to compare %s", left->folder);
    }
    qsort(matches->list, matches->count, sizeof(*matches->list), by_order);
    return RPS_OK;
}

void
rps_compare_matches_finish(struct rps_compare_matches *matches)
{
    for (uint32_t i = 0; i < matches->count; i++) {
        free(matches->list[i].left);
        free(matches->list[i].right);
    }
    free(matches->list);
    *matches = (struct rps_compare_matches){.list = NULL};
}
