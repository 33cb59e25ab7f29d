/* SPDX-License-Identifier: Apache-2.0 */
/* The tree against a sorted array. */
#include "base/hash.h"
#include "client/npu/pool_tree.h"
#include "tests/unit/suite.h"

#include <stdbool.h>
#include <stddef.h>

#define NODES 300
#define CALLS 20000

static struct rps_tree_node nodes[NODES];
static bool inside[NODES];

/* Few values of `first`, so that many keys differ in `second` alone. */
static uint64_t
first_of(uint64_t i)
{
    return 512 * (i % 7);
}

static uint64_t
second_of(uint64_t i)
{
    return (i * 7919) % NODES;
}

static bool
is_less(uint64_t first, uint64_t second, size_t than)
{
    return first != first_of(than) ? first < first_of(than)
                                   : second < second_of(than);
}

/* The model's answer: the least key inside that is not below the given one. */
static struct rps_tree_node *
model_at_least(uint64_t first, uint64_t second)
{
    size_t best = NODES;

    for (size_t i = 0; i < NODES; i++) {
        if (inside[i] &&
                (is_less(first, second, i) ||
                        (first == first_of(i) && second == second_of(i))) &&
                (best == NODES || is_less(first_of(i), second_of(i), best))) {
            best = i;
        }
    }
    return best == NODES ? NULL : &nodes[best];
}

/* The greatest key inside that is not above the given one. */
static struct rps_tree_node *
model_at_most(uint64_t first, uint64_t second)
{
    size_t best = NODES;

    for (size_t i = 0; i < NODES; i++) {
        if (inside[i] && !is_less(first, second, i) &&
                (best == NODES ||
                        is_less(first_of(best), second_of(best), i))) {
            best = i;
        }
    }
    return best == NODES ? NULL : &nodes[best];
}

static struct rps_tree_node *
model_greatest(void)
{
    size_t best = NODES;

    for (size_t i = 0; i < NODES; i++) {
        if (inside[i] && (best == NODES ||
                                 is_less(first_of(best), second_of(best), i))) {
            best = i;
        }
    }
    return best == NODES ? NULL : &nodes[best];
}

START_TEST(inserts_and_removals_in_any_order_answer_like_a_sorted_list)
{
    struct rps_tree_node *root = NULL;
    uint64_t draw = 1;

    for (size_t call = 0; call < CALLS; call++) {
        size_t i;

        draw = rps_mix64(draw);
        i = draw % NODES;
        if (inside[i]) {
            rps_tree_remove(&root, &nodes[i]);
        } else {
            rps_tree_insert(&root, &nodes[i], first_of(i), second_of(i));
        }
        inside[i] = !inside[i];
        i = (draw >> 20) % NODES;
        ck_assert_ptr_eq(rps_tree_at_least(root, first_of(i), second_of(i)),
                model_at_least(first_of(i), second_of(i)));
        ck_assert_ptr_eq(rps_tree_at_most(root, first_of(i), second_of(i)),
                model_at_most(first_of(i), second_of(i)));
        ck_assert_ptr_eq(rps_tree_greatest(root), model_greatest());
    }
}
END_TEST

static size_t
depth(const struct rps_tree_node *node)
{
    size_t left, right;

    if (node == NULL) {
        return 0;
    }
    left = depth(node->child[0]);
    right = depth(node->child[1]);
    return 1 + (left > right ? left : right);
}

START_TEST(keys_that_come_in_order_make_no_deep_tree)
{
    struct rps_tree_node *root = NULL;

    for (size_t i = 0; i < NODES; i++) {
        rps_tree_insert(&root, &nodes[i], 512, 4096 * i);
    }
    ck_assert_uint_lt(depth(root), 30); /* log2(300) is 8.2 */
}
END_TEST

START_TEST(an_empty_tree_has_no_answer)
{
    ck_assert_ptr_null(rps_tree_at_least(NULL, 0, 0));
    ck_assert_ptr_null(rps_tree_at_most(NULL, 0, 0));
    ck_assert_ptr_null(rps_tree_greatest(NULL));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_pool_tree");
    TCase *tcase = tcase_create("tree");

    tcase_add_test(
            tcase, inserts_and_removals_in_any_order_answer_like_a_sorted_list);
    tcase_add_test(tcase, keys_that_come_in_order_make_no_deep_tree);
    tcase_add_test(tcase, an_empty_tree_has_no_answer);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
