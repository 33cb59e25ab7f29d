/* SPDX-License-Identifier: Apache-2.0 */
/* What a store keeps for its cut (cut.c). */
#ifndef RPS_EMBEDDING_STORE_IMPL_H
#define RPS_EMBEDDING_STORE_IMPL_H

#include "embedding/store.h"

struct rps_cut;

/** There as long as the store; its tables copy rows into it. */
struct rps_save_buffer *rps_store_buffer(struct rps_store *store);

/** The cut at hand, NULL: none. Its thread's. */
struct rps_cut **rps_store_cut(struct rps_store *store);

#endif /* RPS_EMBEDDING_STORE_IMPL_H */
