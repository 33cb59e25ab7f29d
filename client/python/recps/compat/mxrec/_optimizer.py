# SPDX-License-Identifier: Apache-2.0
"""The sparse optimizer."""
from __future__ import annotations

import itertools
import typing

import tensorflow as tf

import recps
from recps._table import Push, push_tables
from recps._tensorflow_rows import TensorLike, origin_of
from recps.compat.mxrec import _checks, _sync, _tables
from recps.tensorflow import apply_by

_numbers = itertools.count(1)


def _is_tensor(value: typing.Any) -> bool:
    return bool(tf.is_tensor(value)) or isinstance(value, tf.Variable)


class AdamWOptimizer:
    """AdamW of sparse tables: apply_gradients() of what lookups returned.

    Once there is one, tables are trained by it alone. A key takes one step,
    of the sum of its gradients in all lookups that are applied together.

    :param learning_rate: a float of [0, 10], or a scalar tensor.
    :param weight_decay: [0, 10].
    :param beta_1: [0, 1); ``beta_2`` the same.
    :param epsilon: [0, 1).
    :param name: 1 to 128 characters; one of a name for a table.
    """

    def __init__(self, learning_rate: TensorLike = 0.01,
                 weight_decay: float = 0.004, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-8,
                 name: str = "AdamW") -> None:
        self._rate: TensorLike = None
        if _is_tensor(learning_rate):
            self._rate = learning_rate
            first = 0.01  # of the table; each push has its own
        else:
            first = _checks.real("learning_rate", learning_rate, 10)
        self._spec = recps.AdamW(
            first,
            weight_decay=_checks.real("weight_decay", weight_decay, 10),
            beta1=_checks.real("beta_1", beta_1, 1, True),
            beta2=_checks.real("beta_2", beta_2, 1, True),
            epsilon=_checks.real("epsilon", epsilon, 1, True))
        self._name = _checks.text("name", name, 128)
        self._number = next(_numbers)  # the same in every worker
        _tables.sparse_optimizer_is_there()

    def get_name(self) -> str:
        """Its name."""
        return self._name

    def compute_gradients(self, loss: TensorLike,
                          var_list: typing.Sequence[TensorLike] | None = None
                          ) -> list[tuple[TensorLike, TensorLike]]:
        """Gradients of a loss by what lookups returned; in a graph.

        :param var_list: None: of every lookup, get_sparse_embedding().
        """
        rows = (_tables.get_sparse_embedding() if var_list is None
                else list(var_list))
        return list(zip(tf.gradients(loss, rows), rows))

    def apply_gradients(self, grads_and_vars: typing.Iterable[tuple[
                            TensorLike, TensorLike]],
                        global_step: TensorLike = None,
                        name: str | None = None) -> TensorLike:
        """Push: ``apply_gradients(zip(grads, embs))``.

        :param global_step: a variable that is counted up.
        :returns: in a graph the operation to run, else None.
        :raises NotImplementedError: a gradient of a dense variable.
        """
        pairs = list(grads_and_vars)
        for _, rows in pairs:
            origin = origin_of(rows)
            if origin is None:
                raise NotImplementedError(
                    "AdamWOptimizer: a sparse optimizer cannot update the "
                    f"dense variable {getattr(rows, 'name', rows)!r}: give it "
                    "what embedding_lookup() returned")
            for table in _tables.get_existing_tables():
                if table.rows is origin.rows:
                    table.bind(self._name, self, self._spec)
        done = apply_by(self._push, pairs, self._rate)
        if global_step is None:
            return done
        with tf.control_dependencies([] if done is None else [done]):
            counted = tf.compat.v1.assign_add(
                global_step, tf.ones([], global_step.dtype), name=name)
        return None if tf.executing_eagerly() else counted.op

    def _push(self, pushes: list[Push]) -> None:
        steps = _sync.active()
        if steps is None:
            push_tables(pushes)
        else:
            steps.keep(self._number, pushes)

    def minimize(self, loss: TensorLike, global_step: TensorLike = None,
                 var_list: typing.Sequence[TensorLike] | None = None
                 ) -> TensorLike:
        """Both; in a graph."""
        return self.apply_gradients(
            self.compute_gradients(loss, var_list), global_step)
