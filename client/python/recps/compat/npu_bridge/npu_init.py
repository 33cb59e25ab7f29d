# SPDX-License-Identifier: Apache-2.0
"""``from npu_bridge.npu_init import *``: what the guide's sessions use."""
from __future__ import annotations

from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from recps.compat import _collective, _session
from recps.compat.npu_bridge.estimator import npu_ops, npu_unary_ops
from recps.compat.npu_bridge.estimator._absent import (
    NPUEstimator, NPUEstimatorSpec, NPURunConfig)
from recps.compat.npu_bridge.estimator.npu.npu_loss_scale_manager import (
    ExponentialUpdateLossScaleManager, FixedLossScaleManager)
from recps.compat.npu_bridge.estimator.npu.npu_loss_scale_optimizer import (
    NPULossScaleOptimizer)
from recps.compat.npu_bridge.estimator.npu.npu_optimizer import (
    NPUBroadcastGlobalVariablesHook, NPUDistributedOptimizer, npu_allreduce,
    npu_distributed_optimizer_wrapper)
from recps.compat.npu_bridge.hccl import hccl_ops

__all__ = ["ExponentialUpdateLossScaleManager", "FixedLossScaleManager",
           "NPUBroadcastGlobalVariablesHook", "NPUDistributedOptimizer",
           "NPUEstimator", "NPUEstimatorSpec", "NPULossScaleOptimizer",
           "NPURunConfig", "RewriterConfig", "get_local_rank_id",
           "get_rank_id", "get_rank_size", "hccl_ops", "npu_allreduce",
           "npu_distributed_optimizer_wrapper", "npu_ops", "npu_unary_ops"]


def get_rank_id() -> int:
    """This process among all: MPI's rank, else TF_CONFIG's, else 0."""
    return _collective.rank()


def get_rank_size() -> int:
    """How many processes train."""
    return _collective.size()


def get_local_rank_id() -> int:
    """This process among those of its host."""
    return _collective.local_rank()


_session.install()
