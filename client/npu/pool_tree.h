/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ordered set of nodes that lie in what they order: a treap. The pool keeps
 * its free blocks by (bytes, address), which answers the best fit, and its
 * live blocks by address. Nothing is allocated, so giving back cannot fail.
 *
 * Threads: one at a time, its owner's lock.
 */
#ifndef RPS_NPU_POOL_TREE_H
#define RPS_NPU_POOL_TREE_H

#include <stdint.h>

/** A key is the pair (first, second), and is in a tree once. */
struct rps_tree_node {
    struct rps_tree_node *child[2]; /* less, greater */
    uint64_t first;
    uint64_t second;
    uint64_t rank; /* a parent's is no less than its children's */
};

/** Owns: the tree borrows the node until it is removed. */
void rps_tree_insert(struct rps_tree_node **root, struct rps_tree_node *node,
        uint64_t first, uint64_t second);

/** The node is in this tree. */
void rps_tree_remove(struct rps_tree_node **root, struct rps_tree_node *node);

/** The least key that is (first, second) or more; NULL: there is none. */
struct rps_tree_node *rps_tree_at_least(
        struct rps_tree_node *root, uint64_t first, uint64_t second);

/** The greatest key that is (first, second) or less; NULL: there is none. */
struct rps_tree_node *rps_tree_at_most(
        struct rps_tree_node *root, uint64_t first, uint64_t second);

/** The greatest key; NULL: the tree is empty. */
struct rps_tree_node *rps_tree_greatest(struct rps_tree_node *root);

#endif /* RPS_NPU_POOL_TREE_H */
