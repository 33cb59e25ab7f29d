# SPDX-License-Identifier: Apache-2.0
"""``npu_bridge`` of the guide: see :mod:`npu_bridge.npu_init`."""
