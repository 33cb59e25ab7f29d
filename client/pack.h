/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributes a call over frames: for each PS the runs of every table,
 * split where request or reply would exceed a frame.
 */
#ifndef RPS_CLIENT_PACK_H
#define RPS_CLIENT_PACK_H

#include "client/bags.h"
#include "client/dedup.h"
#include "client/exchange.h"

/** One table of a call, as far as packing goes. */
struct rps_pack_item {
    rps_embedding_table *table;
    const struct rps_dedup *dedup;
    size_t key_bytes; /* of a key: the larger of request and reply */
    /** Bags that the servers pool: its pieces are the parts (part.first is a
     * piece's number, part.count its entries; 0: none, of a push without
     * keys). NULL: runs of keys. */
    const struct rps_bag_plan *plan;
    uint16_t value; /* KEYS ask for rows of this type */
};

/** What one part of this many sections may take of a frame. */
size_t rps_pack_part_bytes(const rps_client *client, uint32_t sections);

struct rps_pack {
    rps_client *client;
    struct rps_outbox *outbox;
    struct rps_request request; /* ps, flags' MORE and sections are set here */
    const struct rps_pack_item *items;
    uint32_t item_count;
    uint32_t sections; /* of one part in the request, at most */
    bool push;         /* every PS and table has a part; MORE is set */
    rps_take_fn *take;
    /** Add the part's sections. */
    void (*write)(void *work, struct rps_builder *builder,
            const struct rps_part *part, uint32_t ps);
    /** Does this item go along? NULL: each does. */
    bool (*takes)(const void *work, uint32_t item);
    void *work;
};

/** Build all frames into the outbox. NOMEM, LIMIT: abort the outbox. */
rps_status rps_pack_all(const struct rps_pack *pack);

/**
 * Build all frames, send them, wait for the answers: a call that blocks.
 * pack->outbox is set here; pack->work is the ticket's too. asked: the table
 * to name if a PS does not know it, or NULL. what: "an erase", for words.
 */
rps_status rps_pack_exchange(struct rps_pack *pack,
        const rps_embedding_table *asked, const char *what);

/** The distinct keys of a part; a copy goes into the frame. */
void rps_pack_keys(struct rps_builder *builder,
        const struct rps_pack_item *item, const struct rps_part *part);

/** COUNTS, if any key of the part occurs more than once. */
void rps_pack_counts(struct rps_builder *builder,
        const struct rps_pack_item *item, const struct rps_part *part);

#endif /* RPS_CLIENT_PACK_H */
