# SPDX-License-Identifier: Apache-2.0
"""How good the models get on real data, from recps's own start weights.

No number, seed or initializer was chosen on the test rows.
"""
import numpy
import pytest

import trainer

pytestmark = trainer.needs_programs


def criteo(seed, *flags, workers=1):
    path = trainer.data("criteo.tsv")
    return trainer.auc_of(trainer.launch(
        "--data", f"criteo:{path}", "--train-rows", 7000, "--epochs", 3,
        "--seed", seed, *flags, workers=workers).stdout)


def ml100k(seed):
    folder = trainer.data("ml-100k.inter").parent
    return trainer.auc_of(trainer.launch(
        "--data", f"ml-100k:{folder}", "--train-rows", 80000, "--epochs", 2,
        "--seed", seed).stdout)


def test_criteo_with_one_seed():
    assert criteo(1) > 0.67  # PyTorch: mean 0.695, sd 0.005


def test_criteo_async_with_one_seed():
    assert criteo(1, "--mode", "async", workers=2) > 0.66


@pytest.mark.long
def test_criteo_mean_of_five_seeds():
    assert numpy.mean([criteo(seed) for seed in range(1, 6)]) >= 0.690


@pytest.mark.long
def test_criteo_async_mean_of_five_seeds():
    aucs = [criteo(seed, "--mode", "async", workers=2)
            for seed in range(1, 6)]
    assert numpy.mean(aucs) >= 0.68


@pytest.mark.long
def test_ml100k_mean_of_five_seeds():
    assert numpy.mean([ml100k(seed) for seed in range(1, 6)]) >= 0.650
