/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups and pushes: rows that belong to keys. The two sides may have them in
 * another order, and each row is compared for itself: one that is wrong among
 * a thousand does not show in the cosine of all.
 */
#include "client/precision/compare_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A key and the place of its row. */
struct key {
    uint64_t key;
    uint64_t row;
};

/* Places of rows that have the same key. */
struct row_pair {
    uint64_t left, right;
};

struct aligning {
    struct row_pair *pairs; /* [pair_count] by key */
    uint64_t *keys;         /* [pair_count] */
    bool *differ;           /* [pair_count] a row of some tensor */
    uint64_t pair_count;
};

static const struct rps_dumped_tensor *
keys_of(const struct rps_dumped_operator *op)
{
    const struct rps_dumped_tensor *keys = op->inputs;

    return op->input_count > 0 && keys->ndim == 1 && keys->shape_known &&
                           (keys->dtype == RPS_DUMP_U64 ||
                                   keys->dtype == RPS_DUMP_I64)
                   ? keys
                   : NULL;
}

static bool
is_keyed(const struct rps_dumped_operator *op)
{
    return strcmp(op->type, "lookup") == 0 || strcmp(op->type, "push") == 0;
}

bool
rps_compare_has_keys(const struct rps_compared *compared)
{
    const struct rps_dumped_operator *left = compared->left;
    const struct rps_dumped_operator *right = compared->right;

    return left != NULL && right != NULL && compared->left_count == 1 &&
           compared->right_count == 1 && (is_keyed(left) || is_keyed(right)) &&
           keys_of(left) != NULL && keys_of(right) != NULL &&
           compared->tensor_count > 0 &&
           compared->tensors[0].left == left->inputs &&
           compared->tensors[0].right == right->inputs;
}

/* --- keys ---------------------------------------------------------------- */

static int
by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->row < y->row ? -1 : x->row > y->row;
}

/* values->count of them, sorted; NULL: no memory. */
static struct key *
sorted_keys(const struct rps_dumped_values *values)
{
    struct key *keys = calloc(values->count + 1, sizeof(*keys));

    if (keys == NULL) {
        return NULL;
    }
    for (uint64_t i = 0; i < values->count; i++) {
        keys[i] = (struct key){.key = values->keys[i], .row = i};
    }
    qsort(keys, values->count, sizeof(*keys), by_key);
    return keys;
}

static void
merge(struct aligning *aligning, const struct key *left, uint64_t left_count,
        const struct key *right, uint64_t right_count,
        struct rps_compared *compared)
{
    uint64_t l = 0, r = 0;

    while (l < left_count && r < right_count) {
        if (left[l].key == right[r].key) {
            const uint64_t at = aligning->pair_count++;

            aligning->keys[at] = left[l].key;
            aligning->pairs[at] = (struct row_pair){
                    .left = left[l++].row, .right = right[r++].row};
        } else if (left[l].key < right[r].key) {
            compared->keys_left++;
            l++;
        } else {
            compared->keys_right++;
            r++;
        }
    }
    compared->keys_left += left_count - l;
    compared->keys_right += right_count - r;
}

static bool
align(struct aligning *aligning, const struct rps_dumped_values values[2],
        struct rps_compared *compared)
{
    const uint64_t most = values[0].count < values[1].count ? values[0].count
                                                            : values[1].count;
    struct key *left = sorted_keys(&values[0]);
    struct key *right = sorted_keys(&values[1]);
    bool good;

    aligning->pairs = calloc(most + 1, sizeof(*aligning->pairs));
    aligning->keys = calloc(most + 1, sizeof(*aligning->keys));
    aligning->differ = calloc(most + 1, sizeof(*aligning->differ));
    good = left != NULL && right != NULL && aligning->pairs != NULL &&
           aligning->keys != NULL && aligning->differ != NULL;
    if (good) {
        merge(aligning, left, values[0].count, right, values[1].count,
                compared);
    }
    free(left);
    free(right);
    return good;
}

/* The keys themselves: the same ones, in whatever order. */
static void
give_keys(struct rps_compared_tensor *tensor,
        const struct rps_dumped_values values[2],
        const struct rps_compared *compared)
{
    const bool same_keys =
            compared->keys_left == 0 && compared->keys_right == 0;
    struct rps_compare_sums sums = {.equal = true};

    if (values[0].count == values[1].count) {
        rps_compare_sums_add(
                &sums, values[0].numbers, values[1].numbers, values[0].count);
        sums.equal =
                sums.equal && memcmp(values[0].keys, values[1].keys,
                                      values[0].count * sizeof(uint64_t)) == 0;
        rps_compare_sums_give(&sums, tensor);
    }
    if (!same_keys) {
        rps_compare_problem(tensor, false,
                "keys of one side only: %" PRIu64 " left, %" PRIu64 " right",
                compared->keys_left, compared->keys_right);
    }
    tensor->agrees = same_keys;
}

/* --- rows ---------------------------------------------------------------- */

static uint64_t
row_elements(const struct rps_dumped_tensor *tensor)
{
    uint64_t elements = 1;

    for (uint32_t d = 1; d < tensor->ndim; d++) {
        elements *= tensor->shape[d];
    }
    return elements;
}

bool
rps_compare_row_agrees(const struct rps_compare_sums *sums,
        const struct rps_compare_options *options)
{
    if (sums->equal) {
        return true;
    }
    return !options->exact &&
           rps_compare_sums_cosine(sums) >= options->threshold &&
           rps_compare_sums_ratio(sums) >=
                   rps_compare_length_threshold(options->threshold);
}

/* NaN is less than all. */
static void
take_least(struct rps_compared_tensor *tensor, double cosine, uint64_t key)
{
    if (!tensor->has_rows ||
            (!isnan(tensor->row_cosine) && !(cosine >= tensor->row_cosine))) {
        tensor->has_rows = true;
        tensor->row_cosine = cosine;
        tensor->row_key = key;
    }
}

static void
add_rows(struct rps_compared_tensor *tensor,
        const struct rps_dumped_values values[2], uint64_t dim,
        struct aligning *aligning, const struct rps_compare_options *options)
{
    struct rps_compare_sums sums = {.equal = true};

    for (uint64_t i = 0; i < aligning->pair_count; i++) {
        const double *left = values[0].numbers + aligning->pairs[i].left * dim;
        const double *right =
                values[1].numbers + aligning->pairs[i].right * dim;
        struct rps_compare_sums row = {.equal = true};

        rps_compare_sums_add(&row, left, right, dim);
        rps_compare_sums_add(&sums, left, right, dim);
        take_least(tensor, rps_compare_sums_cosine(&row), aligning->keys[i]);
        if (!rps_compare_row_agrees(&row, options)) {
            tensor->rows_differ++;
            aligning->differ[i] = true;
        }
    }
    rps_compare_sums_give(&sums, tensor);
    tensor->agrees = tensor->rows_differ == 0;
}

static bool
is_rows(const struct rps_dumped_tensor *tensor, uint64_t keys)
{
    return tensor->shape_known && tensor->ndim > 0 && tensor->shape[0] == keys;
}

static void
compare_rows_of(struct rps_compared_tensor *tensor,
        const struct rps_dumped_values keys[2], struct aligning *aligning,
        const struct rps_compare_options *options)
{
    struct rps_dumped_values values[2] = {{.count = 0}, {.count = 0}};
    struct rps_error error = {.text = ""};
    const uint64_t dim = tensor->left != NULL ? row_elements(tensor->left) : 0;

    if (tensor->left == NULL || tensor->right == NULL ||
            !is_rows(tensor->left, keys[0].count) ||
            !is_rows(tensor->right, keys[1].count) ||
            dim != row_elements(tensor->right)) {
        rps_compare_tensor(tensor, false, options);
        return;
    }
    tensor->agrees = true;
    tensor->cosine = (double)NAN;
    if (rps_dumped_load(tensor->left, &values[0], &error) != RPS_OK ||
            rps_dumped_load(tensor->right, &values[1], &error) != RPS_OK) {
        rps_compare_problem(tensor, true, "%s", error.text);
    } else if (values[0].count == keys[0].count * dim &&
               values[1].count == keys[1].count * dim) {
        add_rows(tensor, values, dim, aligning, options);
    } else {
        rps_compare_problem(tensor, true, "%s and %s: not a row a key",
                tensor->left->file != NULL ? tensor->left->file : "(no file)",
                tensor->right->file != NULL ? tensor->right->file
                                            : "(no file)");
    }
    rps_dumped_values_free(&values[0]);
    rps_dumped_values_free(&values[1]);
}

static void
tell_keys(struct rps_compared *compared, const struct aligning *aligning)
{
    uint64_t last = 0;

    for (uint64_t i = 0; i < aligning->pair_count; i++) {
        /* a push may have a key several times; they stand side by side */
        if (aligning->differ[i] &&
                (compared->keys_differ == 0 || aligning->keys[i] != last)) {
            last = aligning->keys[i];
            if (compared->keys_differ < RPS_COMPARE_KEYS_MAX) {
                compared->keys[compared->keys_differ] = aligning->keys[i];
            }
            compared->keys_differ++;
        }
    }
}

void
rps_compare_rows(struct rps_compared *compared,
        const struct rps_compare_options *options)
{
    struct rps_compared_tensor *tensor = &compared->tensors[0];
    struct rps_dumped_values keys[2] = {{.count = 0}, {.count = 0}};
    struct aligning aligning = {.pairs = NULL};
    struct rps_error error = {.text = ""};

    assert(compared->tensor_count > 0 && !tensor->is_output);
    tensor->agrees = true;
    tensor->cosine = (double)NAN;
    if (rps_dumped_load(tensor->left, &keys[0], &error) != RPS_OK ||
            rps_dumped_load(tensor->right, &keys[1], &error) != RPS_OK) {
        rps_compare_problem(tensor, true, "%s", error.text);
        for (uint32_t i = 1; i < compared->tensor_count; i++) {
            rps_compare_tensor(&compared->tensors[i], false, options);
        }
    } else if (!align(&aligning, keys, compared)) {
        rps_compare_problem(tensor, false, "no memory for its keys");
    } else {
        compared->has_keys = true;
        give_keys(tensor, keys, compared);
        for (uint32_t i = 1; i < compared->tensor_count; i++) {
            compare_rows_of(&compared->tensors[i], keys, &aligning, options);
        }
        tell_keys(compared, &aligning);
    }
    free(aligning.pairs);
    free(aligning.keys);
    free(aligning.differ);
    rps_dumped_values_free(&keys[0]);
    rps_dumped_values_free(&keys[1]);
}
