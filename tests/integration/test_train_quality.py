# SPDX-License-Identifier: Apache-2.0
"""How good the models get on real data, from recps's own start weights.

No number, seed or initializer was chosen on the test rows.
"""
import numpy
import pytest

import trainer

pytestmark = trainer.needs_programs


TORCH = 0.695  # mean AUC of the same model in PyTorch, ten seeds


def criteo(seed, *flags, ps=2, workers=1):
    path = trainer.data("criteo.tsv")
    return trainer.auc_of(trainer.launch(
        "--data", f"criteo:{path}", "--train-rows", 7000, "--epochs", 3,
        "--seed", seed, *flags, ps=ps, workers=workers).stdout)


def ml100k(seed):
    folder = trainer.data("ml-100k.inter").parent
    return trainer.auc_of(trainer.launch(
        "--data", f"ml-100k:{folder}", "--train-rows", 80000, "--epochs", 2,
        "--seed", seed).stdout)


# Each gradient is of 128 rows, as PyTorch's: in sync those of all workers, in
# the other modes, where each push is a step, those of one.
@pytest.mark.parametrize("mode, workers, rows", [
    ("sync", 1, 128), ("bounded:2", 2, 128), ("async", 2, 128)])
def test_criteo_with_one_seed(mode, workers, rows):
    auc = criteo(1, "--mode", mode, "--batch-size", rows, workers=workers)
    assert abs(auc - TORCH) < 0.02  # PyTorch's seeds: deviation 0.005


@pytest.mark.parametrize("epochs, ps", [
    (1, 2), pytest.param(3, 1, marks=pytest.mark.long),
    pytest.param(3, 2, marks=pytest.mark.long)])
def test_two_workers_of_batch_64_are_one_of_128(tmp_path, epochs, ps):
    path = trainer.data("criteo.tsv")
    runs = []
    for workers in (1, 2):
        log = tmp_path / f"{workers}.json"
        trainer.launch("--data", f"criteo:{path}", "--train-rows", 7000,
                       "--epochs", epochs, "--batch-size", 128 // workers,
                       "--json-log", log, ps=ps, workers=workers)
        runs.append(trainer.log_of(log))
    one, two = runs
    assert sorted(one[0]) == sorted(two[0])
    for step, loss in one[0].items():
        assert abs(two[0][step] - loss) < 1e-5  # 3e-8 was seen
    assert abs(two[1]["auc"] - one[1]["auc"]) < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("ps", [1, 2])
@pytest.mark.parametrize("mode, workers, rows", [
    ("sync", 1, 128), ("sync", 2, 64), ("bounded:2", 1, 128),
    ("bounded:2", 2, 128), ("async", 1, 128), ("async", 2, 128)])
def test_criteo_mean_of_five_seeds_is_pytorch_s(mode, workers, rows, ps):
    aucs = [criteo(seed, "--mode", mode, "--batch-size", rows, ps=ps,
                   workers=workers) for seed in range(1, 6)]
    assert abs(numpy.mean(aucs) - TORCH) <= 0.01, aucs


@pytest.mark.long
def test_ml100k_mean_of_five_seeds():
    assert numpy.mean([ml100k(seed) for seed in range(1, 6)]) >= 0.650
