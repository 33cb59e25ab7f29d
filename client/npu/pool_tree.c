/* SPDX-License-Identifier: Apache-2.0 */
/* A treap: a search tree by key, a heap by a rank that is drawn of the key, so
 * that its depth is that of a random tree whatever the order of insertion. */
#include "client/npu/pool_tree.h"

#include "base/hash.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

static bool
is_less(const struct rps_tree_node *node, uint64_t first, uint64_t second)
{
    return node->first != first ? node->first < first : node->second < second;
}

/* Everything below (first, second) goes to *low, the rest to *high. */
static void
split(struct rps_tree_node *tree, uint64_t first, uint64_t second,
        struct rps_tree_node **low, struct rps_tree_node **high)
{
    while (tree != NULL) {
        if (is_less(tree, first, second)) {
            *low = tree;
            low = &tree->child[1];
            tree = *low;
        } else {
            *high = tree;
            high = &tree->child[0];
            tree = *high;
        }
    }
    *low = NULL;
    *high = NULL;
}

/* One tree of two, all keys of the first below those of the second. */
static struct rps_tree_node *
join(struct rps_tree_node *low, struct rps_tree_node *high)
{
    struct rps_tree_node *root = NULL;
    struct rps_tree_node **at = &root;

    while (low != NULL && high != NULL) {
        if (low->rank >= high->rank) {
            *at = low;
            at = &low->child[1];
            low = *at;
        } else {
            *at = high;
            at = &high->child[0];
            high = *at;
        }
    }
    *at = low != NULL ? low : high;
    return root;
}

void
rps_tree_insert(struct rps_tree_node **root, struct rps_tree_node *node,
        uint64_t first, uint64_t second)
{
    node->first = first;
    node->second = second;
    node->rank = rps_mix64(second ^ rps_mix64(first));
    while (*root != NULL && (*root)->rank > node->rank) {
        root = &(*root)->child[is_less(*root, first, second)];
    }
    split(*root, first, second, &node->child[0], &node->child[1]);
    *root = node;
}

void
rps_tree_remove(struct rps_tree_node **root, struct rps_tree_node *node)
{
    while (*root != node) {
        assert(*root != NULL);
        root = &(*root)->child[is_less(*root, node->first, node->second)];
    }
    *root = join(node->child[0], node->child[1]);
}

struct rps_tree_node *
rps_tree_at_least(struct rps_tree_node *root, uint64_t first, uint64_t second)
{
    struct rps_tree_node *found = NULL;

    while (root != NULL) {
        if (is_less(root, first, second)) {
            root = root->child[1];
        } else {
            found = root;
            root = root->child[0];
        }
    }
    return found;
}

struct rps_tree_node *
rps_tree_at_most(struct rps_tree_node *root, uint64_t first, uint64_t second)
{
    struct rps_tree_node *found = NULL;

    while (root != NULL) {
        if (root->first > first ||
                (root->first == first && root->second > second)) {
            root = root->child[0];
        } else {
            found = root;
            root = root->child[1];
        }
    }
    return found;
}

struct rps_tree_node *
rps_tree_greatest(struct rps_tree_node *root)
{
    while (root != NULL && root->child[1] != NULL) {
        root = root->child[1];
    }
    return root;
}
