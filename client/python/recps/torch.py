# SPDX-License-Identifier: Apache-2.0
"""Tables as PyTorch modules: forward looks up, backward pushes.

    >>> user = recps.torch.EmbeddingTable("user", 16, optimizer="adagrad")
    >>> loss = criterion(model(user(ids)), labels)
    >>> loss.backward()             # the servers have taken user's step

Rows are no parameters: a table's optimizer is the servers', torch.optim has the
dense part, and DistributedDataParallel averages that alone. docs/PYTHON.md,
PyTorch.
"""
from __future__ import annotations

import contextlib
import typing

import numpy
import torch
from torch import nn

import recps
from recps._arrays import ArrayLike
from recps._client import Client
from recps._rates import Rates
from recps._table import EmbeddingTable as Table
from recps._table import Push, push_tables, warn_of_catchup
from recps._ticket import Ticket, settle

__all__ = ["EmbeddingBagTable", "EmbeddingTable", "push_gradients"]

_ID_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_STATE_FORMAT = 1

_own_client: list[Client] = []


def _default_client() -> Client:
    """One client for modules that are given none: connect()'s."""
    if not _own_client or _own_client[0].closed or not _own_client[0].is_ours:
        _own_client[:] = [recps.connect()]
    return _own_client[0]


class _Lookup(torch.autograd.Function):
    """Rows of ids; their gradient goes to the module, not to a tensor."""

    @staticmethod
    def forward(ctx: typing.Any, anchor: torch.Tensor, module: EmbeddingTable,
                ids: torch.Tensor, offsets: torch.Tensor | None
                ) -> torch.Tensor:
        """anchor only makes autograd call backward()."""
        ctx.module = module
        # autograd refuses a backward pass after ids were changed in place, and
        # a second one, which would push again
        ctx.save_for_backward(ids, offsets)
        return module._rows(ids, offsets)

    @staticmethod
    def backward(ctx: typing.Any, *grads: typing.Any) -> typing.Any:
        """Push them."""
        if torch.is_grad_enabled():
            raise RuntimeError("recps: a table has no second derivative "
                               "(create_graph=True)")
        ids, offsets = ctx.saved_tensors
        ctx.module._take(ids, offsets, grads[0])
        return None, None, None, None


class EmbeddingTable(Rates, nn.Module):
    """``nn.Embedding`` whose rows are on parameter servers.

    :param name: of the table; ``dimension`` is that of its rows.
    :param client: None: one of ``recps.connect()``, shared by modules.
    :param learning_rate: of pushes; None: the optimizer's. May be set between
        steps (``module.learning_rate``), as a schedule does.
    :param padding_idx: an id that reads zeros and is never trained.
    :param push: ``backward`` pushes in it, each lookup a step of its own;
        ``step`` keeps the gradients for :func:`push_gradients`, which sums a
        step's lookups, and which jobs in sync mode need.
    :param gradient_scale: gradients are multiplied by it: 1 / world size where
        DistributedDataParallel averages the dense part.
    :param spec: what else ``Client.get_embedding_table`` takes: ``optimizer``,
        ``initializer``, ``value_dtype``, ``min_used_times``, ...

    In eval mode an id without a row answers the table's default (zeros).
    """

    def __init__(self, name: str, dimension: int, *,
                 client: Client | None = None,
                 learning_rate: float | None = None,
                 padding_idx: int | None = None, push: str = "backward",
                 gradient_scale: float = 1.0, **spec: typing.Any) -> None:
        super().__init__()
        if push not in ("backward", "step"):
            raise ValueError(f"push: {push!r}, must be backward or step")
        self.client = client if client is not None else _default_client()
        self.table: Table = self.client.get_embedding_table(
            name, dimension, **spec)
        warn_of_catchup(self.table, push)
        self.learning_rate = learning_rate
        self.padding_idx = padding_idx
        self.push_when = push
        self.gradient_scale = gradient_scale
        self._open: list[Ticket[None]] = []  # pushes on their way
        self._kept: list[Push] = []
        # no parameter: optimizers, DDP and state_dict() do not see it
        self._anchor = torch.empty(0, requires_grad=True)

    @property
    def embedding_dim(self) -> int:
        """Floats of a row."""
        return self.table.dimension

    def extra_repr(self) -> str:
        """As nn.Embedding has it."""
        return f"{self.table.name!r}, {self.table.dimension}"

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of ids of any shape: ``ids.shape + (dimension,)`` float32."""
        return self._look_up(ids, None)

    def _look_up(self, ids: torch.Tensor,
                 offsets: torch.Tensor | None) -> torch.Tensor:
        _check_ids(ids)
        if torch.is_grad_enabled() and self.training:
            rows: torch.Tensor = _Lookup.apply(
                self._anchor, self, ids, offsets)
            return rows
        return self._rows(ids, offsets)

    def _bags(self, offsets: torch.Tensor | None) -> dict[str, typing.Any]:
        """What a lookup and a push are told of bags."""
        return {}

    def _rows(self, ids: torch.Tensor,
              offsets: torch.Tensor | None) -> torch.Tensor:
        shape = ids.shape if offsets is None else offsets[1:].shape
        rows = torch.empty((*shape, self.table.dimension))
        with self._pushes_first():
            ticket = self.table.lookup_async(
                _array(ids), rows.numpy(), padding=self.padding_idx,
                read_only=not self.training, **self._bags(offsets))
            try:
                self.wait()
            except BaseException:
                ticket.cancel()
                raise
            settle(ticket)
        return rows.to(ids.device) if ids.device.type != "cpu" else rows

    @contextlib.contextmanager
    def _pushes_first(self) -> typing.Iterator[None]:
        """A lookup is sent behind the pushes that are on their way: a server
        carries a client's requests out in their order, so it sees them, and
        both are waited for at once. What became of a push is told first."""
        try:
            yield
        except recps.Error:
            self.wait()
            raise

    def _take(self, ids: torch.Tensor, offsets: torch.Tensor | None,
              gradient: torch.Tensor) -> None:
        if self.push_when == "step":
            # the caller's buffers may hold the next batch by then
            ids = ids.clone()
            offsets = None if offsets is None else offsets.clone()
        if self.gradient_scale != 1.0:
            gradient = gradient * self.gradient_scale
        push = Push(self.table, _array(ids),
                    _array(gradient.to(torch.float32)), self.learning_rate,
                    padding=self.padding_idx, **self._bags(offsets))
        if self.push_when == "step":
            self._kept.append(push)
            return
        self._open.append(self.table.push_async(
            push.ids, push.gradients, push.lr, padding=push.padding,
            **self._bags(offsets)))

    def requires_grad_(self, requires_grad: bool = True) -> EmbeddingTable:
        """False: lookups have no gradient, and nothing is pushed. That of a
        model which holds this module sets its parameters alone, and there are
        none here: freeze each table, or use ``eval()``."""
        self._anchor.requires_grad_(requires_grad)
        super().requires_grad_(requires_grad)
        return self

    def wait(self) -> None:
        """Until the servers have taken every push of this module."""
        while self._open:
            settle(self._open.pop(0))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients that are kept for push_gradients(); those that were
        pushed are applied."""
        self._kept.clear()
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def assign(self, ids: torch.Tensor | ArrayLike,
               rows: torch.Tensor | ArrayLike) -> None:
        """Write rows as they are: start values. Tensors, or what
        :meth:`recps.Table.assign` takes."""
        self.wait()
        self.table.assign(
            _array(ids) if isinstance(ids, torch.Tensor) else ids,
            _array(rows.to(torch.float32))
            if isinstance(rows, torch.Tensor) else rows)

    # --- state_dict -------------------------------------------------------

    def get_extra_state(self) -> dict[str, typing.Any]:
        """What state_dict() holds of a table: not its rows, but where they
        are. Save those with ``Client.save``."""
        self.wait()
        return {"format": _STATE_FORMAT, "table": self.table.name,
                "dimension": self.table.dimension,
                "optimizer": self.table.optimizer, **self.client.where()}

    def set_extra_state(self, state: typing.Any) -> None:
        """Check that a state_dict() is of this table; bring its rows back with
        ``Client.restore(state["checkpoint_step"])``."""
        mine = {"format": _STATE_FORMAT, "table": self.table.name,
                "dimension": self.table.dimension,
                "optimizer": self.table.optimizer}
        if not isinstance(state, dict):
            raise recps.MismatchError(
                f"state_dict: {type(state).__name__}, must be what "
                "get_extra_state() answered")
        for field, value in mine.items():
            if state.get(field) != value:
                raise recps.MismatchError(
                    f"state_dict: {field} is {state.get(field)!r}, this "
                    f"table's is {value!r}")


class EmbeddingBagTable(EmbeddingTable):
    """``nn.EmbeddingBag``: the rows of a bag become one.

    :param mode: ``sum``, ``mean`` or ``sqrtn``.
    :param include_last_offset: as nn.EmbeddingBag: offsets end with the number
        of ids.
    :param pool_on_server: each server sums what it has of a bag.
    """

    def __init__(self, name: str, dimension: int, *, mode: str = "mean",
                 include_last_offset: bool = False,
                 pool_on_server: bool = False, **more: typing.Any) -> None:
        if mode not in ("sum", "mean", "sqrtn"):
            raise ValueError(f"mode: {mode!r}, must be sum, mean or sqrtn")
        super().__init__(name, dimension, **more)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.pool_on_server = pool_on_server

    def extra_repr(self) -> str:
        """As nn.EmbeddingBag has it."""
        return f"{super().extra_repr()}, mode={self.mode!r}"

    def forward(self, ids: torch.Tensor,
                offsets: torch.Tensor | None = None) -> torch.Tensor:
        """``(bags, dimension)`` of ids ``[bags, each]``, or of flat ids and
        where each bag begins."""
        _check_ids(ids)
        if offsets is not None:
            _check_ids(offsets, "offsets")
        if ids.dim() == 2 and offsets is None:
            each = ids.shape[1]
            offsets = torch.arange(ids.shape[0] + 1) * each
            return self._look_up(ids.reshape(-1), offsets)
        if ids.dim() != 1 or offsets is None or offsets.dim() != 1:
            raise ValueError(
                "ids: must be [bags, each] without offsets, or flat with them")
        if not self.include_last_offset:
            end = torch.tensor([ids.numel()], dtype=offsets.dtype)
            offsets = torch.cat([offsets.cpu(), end])
        return self._look_up(ids, offsets)

    def _bags(self, offsets: torch.Tensor | None) -> dict[str, typing.Any]:
        if offsets is None:
            raise ValueError("a bag form needs offsets")
        return {"offsets": _array(offsets), "pooling": self.mode,
                "pool_on_server": self.pool_on_server}


def push_gradients(modules: nn.Module | typing.Iterable[nn.Module], *,
                   step: int = 0) -> None:
    """Push what modules made with ``push="step"`` have kept, in one request:
    duplicates are summed over a step's lookups. In a sync job it is the step's
    push, which every replica makes, also an empty one.

    :param modules: tables, or modules that hold some (a whole model); one, or
        several.
    :param step: of a job; 0 outside one.
    """
    several = ([modules] if isinstance(modules, nn.Module)
               else list(modules))
    for module in several:
        if not isinstance(module, nn.Module):
            raise TypeError(f"modules: {type(module).__name__}, must be "
                            "torch.nn.Module")
    found = {id(each): each for module in several
             for each in module.modules() if isinstance(each, EmbeddingTable)
             and each.push_when == "step"}
    shared: dict[int, list[EmbeddingTable]] = {}  # a table may be of several
    for each in found.values():
        shared.setdefault(id(each.table), []).append(each)
    if shared:
        push_tables([_one_push(mine) for mine in shared.values()], step=step)
        for each in found.values():
            each._kept.clear()


def _one_push(modules: list[EmbeddingTable]) -> Push:
    """A table stands once in a push: its lookups joined, bags spread."""
    module = modules[0]
    for other in modules[1:]:
        if other.learning_rate != module.learning_rate:
            raise ValueError(
                f"{module.table.name}: a module's learning_rate is "
                f"{module.learning_rate}, another's {other.learning_rate}; one "
                "push of a table has one")
    ids, gradients = [], []
    for kept in (kept for each in modules for kept in each._kept):
        flat = numpy.asarray(kept.ids).reshape(-1)
        rows = numpy.asarray(kept.gradients).reshape(
            -1, module.table.dimension)
        if kept.offsets is not None:
            rows = _spread(kept, flat, rows)
        if kept.padding is not None:  # of this module; another may train it
            rows, flat = rows[flat != kept.padding], flat[flat != kept.padding]
        ids.append(flat.astype(numpy.int64))
        gradients.append(rows)
    if not ids:
        ids = [numpy.empty(0, numpy.int64)]
        gradients = [numpy.empty((0, module.table.dimension), numpy.float32)]
    return Push(module.table, numpy.concatenate(ids),
                numpy.concatenate(gradients), module.learning_rate)


def _spread(kept: Push, ids: typing.Any, rows: typing.Any) -> typing.Any:
    """A bag's gradient for each of its ids, divided as it was pooled."""
    offsets = numpy.asarray(kept.offsets)
    counts = numpy.diff(offsets)
    bag = numpy.repeat(numpy.arange(counts.size), counts)
    real = numpy.ones(ids.size, bool) if kept.padding is None else (
        ids != kept.padding)
    sizes = numpy.bincount(bag, real, minlength=counts.size)
    power = {"sum": 0.0, "mean": 1.0, "sqrtn": 0.5}[kept.pooling or "sum"]
    scale = 1 / numpy.maximum(sizes, 1) ** power
    spread: typing.Any = (rows[bag] * scale[bag, None]).astype(numpy.float32)
    return spread


def _check_ids(ids: typing.Any, name: str = "ids") -> None:
    """Integers, in a tensor."""
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"{name}: {type(ids).__name__}, must be a tensor")
    if ids.dtype not in _ID_TYPES:
        raise TypeError(f"{name}: {ids.dtype}, must be integers")


def _array(tensor: torch.Tensor) -> typing.Any:
    """The tensor's memory as NumPy has it."""
    return tensor.detach().cpu().contiguous().numpy()

