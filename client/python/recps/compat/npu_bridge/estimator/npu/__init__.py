# SPDX-License-Identifier: Apache-2.0
"""Optimizers, loss scaling, dropout."""
