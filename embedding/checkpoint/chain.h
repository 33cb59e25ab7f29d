/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint and what it stands on: a full one, and the deltas behind it,
 * each of which names its parent and the parent's digest.
 *
 *   links[0]          full    ckpt-000000000040
 *   links[1]          delta   ckpt-000000000050, parent links[0]
 *   links[count - 1]  delta   ckpt-000000000060, parent links[1]: asked for
 *
 *   1 <= count <= 1 + RPS_CKPT_DELTAS_MAX; steps rise; epochs do not fall
 *
 * The state of a table, slot by slot: for each link from the oldest on, a
 * part that is `whole` drops what was there, then its erased keys go, then
 * its rows are written. Links may have different numbers of parts.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_CHAIN_H
#define RPS_EMBEDDING_CHECKPOINT_CHAIN_H

#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/manifest.h"
#include "embedding/checkpoint/slots.h"

/** What a link says of itself and of its parent. */
struct rps_ckpt_head {
    uint64_t step;
    uint32_t epoch;
    uint64_t job_seed;
    struct rps_digest digest;
    bool is_folded; /* was a delta of digest `folded` */
    struct rps_digest folded;
    bool is_delta;
    uint64_t parent_step;
    struct rps_digest parent_digest;
};

struct rps_ckpt_head rps_ckpt_head_of(const struct rps_ckpt_manifest *manifest);

/**
 * Is `parent`, which stands at child->parent_step in `dir`, the one that the
 * child was made on? MISMATCH names both links, and what differs: the digest,
 * the job seed, or an epoch that is newer than the child's.
 */
rps_status rps_ckpt_head_check(const char *dir,
        const struct rps_ckpt_head *child, const struct rps_ckpt_head *parent,
        struct rps_error *error);

/** One folder. */
struct rps_ckpt_link {
    struct rps_ckpt_folder folder;
    struct rps_ckpt_manifest manifest;
    /* [manifest.part_count], of read_parts; root NULL: it is not here */
    struct rps_ckpt_part *parts;
    bool all_parts; /* none is missing */
};

/** Zeroed it is empty, and may be closed. */
struct rps_ckpt_chain {
    struct rps_ckpt_link links[1 + RPS_CKPT_DELTAS_MAX];
    uint32_t count;
};

/**
 * ckpt-<step> of a checkpoint_dir and its ancestors, or the folder `path`
 * itself and those beside it. Every manifest is read against its checksum and
 * every link is checked; each error names the link. Errors: NOT_FOUND (a link
 * is missing), CORRUPT (one is damaged, or of another step), MISMATCH (one
 * was replaced by another), UNSUPPORTED (another format or kind), LIMIT (more
 * deltas than 16), IO, NOMEM: the chain is then closed.
 */
rps_status rps_ckpt_chain_open(struct rps_ckpt_chain *chain, const char *dir,
        uint64_t step, struct rps_error *error);
rps_status rps_ckpt_chain_open_folder(struct rps_ckpt_chain *chain,
        const char *path, struct rps_error *error);
void rps_ckpt_chain_close(struct rps_ckpt_chain *chain);

/** The one that was asked for: its spec, pushes, admission, lanes count. */
struct rps_ckpt_link *rps_ckpt_chain_last(struct rps_ckpt_chain *chain);

/**
 * The part files of every link. A link that has as many parts as the job has
 * PS (`parts`) needs part `part` only: own disks; parts 0: all are needed.
 * Where a link has all of them, they are checked against its manifest.
 * Errors: NOT_FOUND naming the file, CORRUPT, IO, NOMEM.
 */
rps_status rps_ckpt_chain_read_parts(struct rps_ckpt_chain *chain,
        uint32_t part, uint32_t parts, struct rps_error *error);

/**
 * One table in one part of one link. In the order of the pieces, for those
 * rows and erased keys whose slot is in `live`: erase, then write the rows;
 * what is not live was dropped by a later part that is whole. A piece without
 * live slots is left out, so every slot begins with the rows of one `whole`
 * part, which may be those of no piece: then it begins empty.
 */
struct rps_ckpt_piece {
    uint32_t link; /* of the chain: pieces stand in the order of their links */
    const struct rps_ckpt_folder *folder;
    const struct rps_ckpt_part *part;
    const struct rps_ckpt_table *table; /* as the part says it */
    struct rps_ckpt_slots live;
};

/**
 * The pieces of a table that the last link has; free(*pieces_out). Parts that
 * are not here have none. Errors: NOT_FOUND (the last link has no such
 * table), CORRUPT (a link has it with another identity and is not whole),
 * NOMEM.
 */
rps_status rps_ckpt_chain_pieces(const struct rps_ckpt_chain *chain,
        const char *table, struct rps_ckpt_piece **pieces_out,
        size_t *count_out, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_CHAIN_H */
