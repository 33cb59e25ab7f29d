# SPDX-License-Identifier: Apache-2.0
"""recps: embedding tables on parameter servers, or in this process.

    >>> import numpy, recps
    >>> client = recps.connect("embedded")
    >>> table = client.get_embedding_table("user", 16, optimizer="adagrad")
    >>> rows = table.lookup(numpy.array([[1, 2], [3, 4]]))
    >>> rows.shape
    (2, 2, 16)
    >>> table.push([1, 2], numpy.ones((2, 16), numpy.float32), lr=0.1)
    >>> client.close()

docs/PYTHON.md is the way in. ``recps.checkpoint`` reads what was saved.
"""
from recps._library import path as library_path
from recps._client import (Client, Decision, Saved, Started, Traffic,
                           connect)
from recps._serve import (Role, cluster_flags, cluster_from_flags, role,
                          serve)
from recps._table import (EmbeddingTable, Eviction, Hot, Lookup, Push,
                          RowBatch, lookup_tables, lookup_tables_async,
                          push_tables, push_tables_async)
from recps._ticket import Ticket
from recps.errors import (AuthError, CanceledError, ClosedError,
                          ClusterWarning, CorruptError, DeadlineError, Error, FileError, ForkedError,
                          InvalidError, LimitError, MismatchError,
                          NoMemoryError, NonFiniteError, NotFoundError,
                          ReadOnlyError, RetryLaterError, Rollback,
                          RolledBackError, TimedOutError, UnreachableError,
                          UnsupportedError, WrongRouteError)
from recps.tables import (SGD, Adagrad, Adam, AdamW, Constant, Ftrl,
                          Initializer, Momentum, Normal, Optimizer, RMSprop,
                          RowwiseAdagrad, TruncatedNormal, Uniform,
                          VarianceScaling, Zeros)

__all__ = [
    "Adagrad", "Adam", "AdamW", "AuthError", "CanceledError", "Client",
    "ClosedError", "ClusterWarning", "Constant", "CorruptError", "DeadlineError", "Decision",
    "EmbeddingTable", "Error", "Eviction", "FileError", "ForkedError", "Ftrl",
    "Hot", "Initializer", "InvalidError", "LimitError", "Lookup",
    "MismatchError", "Momentum", "NoMemoryError", "NonFiniteError", "Normal",
    "NotFoundError", "Optimizer", "Push", "RMSprop", "ReadOnlyError",
    "RetryLaterError", "Role", "Rollback", "RolledBackError", "RowBatch",
    "RowwiseAdagrad", "SGD", "Saved", "Started", "Ticket", "TimedOutError",
    "Traffic", "TruncatedNormal", "Uniform", "UnreachableError",
    "UnsupportedError", "VarianceScaling", "WrongRouteError", "Zeros",
    "cluster_flags", "cluster_from_flags", "connect", "library_path",
    "lookup_tables", "lookup_tables_async", "push_tables",
    "push_tables_async", "role", "serve"]
