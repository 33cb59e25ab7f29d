# SPDX-License-Identifier: Apache-2.0
"""``mxrec`` of the guide: sparse tables for TensorFlow sessions, and eager.

    >>> table = mxrec.get_embedding_table("user", 8, 10000)
    >>> rows = mxrec.embedding_lookup(table, ids)

Ranges, defaults and errors are Rec SDK's; docs/MIGRATION.md has what differs.
"""
from recps.compat import _session
from recps.compat.mxrec._config import init
from recps.compat.mxrec._optimizer import AdamWOptimizer
from recps.compat.mxrec._saver import EmbeddingTableSaver
from recps.compat.mxrec._tables import (embedding_lookup, get_embedding_table,
                                        get_existing_tables,
                                        get_init_hashtable_op,
                                        get_sparse_embedding)

get_existing_table = get_existing_tables  # as samples spell it

__all__ = ["AdamWOptimizer", "EmbeddingTableSaver", "embedding_lookup",
           "get_embedding_table", "get_existing_table", "get_existing_tables",
           "get_init_hashtable_op", "get_sparse_embedding", "init"]

_session.install()
