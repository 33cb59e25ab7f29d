# SPDX-License-Identifier: Apache-2.0
"""bench/train.py: what it prints, refuses and finds. Speeds are not tested."""
import json
import subprocess
import sys

import pytest

import package
import programs
import trainer

pytestmark = trainer.needs_programs
SCRIPT = programs.ROOT / "bench/train.py"


def bench(*flags, code=0):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--build", programs.BUILD,
         *map(str, flags)], capture_output=True, text=True, timeout=300,
        env=programs.environment(), check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("flags, words", [
    (["--batch", "0"], "numbers from 1 on"),
    (["--batch", "8000"], "--batch is at most 7000"),
    (["--epochs", 1], "--epochs 2 at least"),
    (["--floor", "2"], "THREADS=RATIO"),
    (["--ours", "torch"], "recps.torch"),
    (["--rownds", 3], "--rownds")])
def test_bad_usage_is_64_and_said(flags, words):
    assert words in bench(*flags, code=64).stderr


@pytest.mark.long
def test_both_train_the_same_model_and_a_floor_is_held():
    pytest.importorskip("torch")
    flags = ["--rounds", 1, "--epochs", 2, "--batch", "500,1000",
             "--threads", 1, "--json"]
    done = bench(*flags, "--floor", "1=1000000", code=1)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["batch"] for line in lines] == [500, 1000]
    for line in lines:
        assert line["over_torch_1"] == pytest.approx(
            line["recps_samples_per_second"] /
            line["torch_1_samples_per_second"])
    assert "below 1000000" in done.stderr
    done = bench(*flags, "--train-flags", "--seed 1 --dense-optimizer sgd",
                 code=1)
    assert "PyTorch's is" in done.stderr


# Of the data and the model that an issue names; without them of made-up rows.
CRITEO = programs.ROOT.parent / "shared/data/criteo.tsv"
REFERENCE = programs.ROOT.parent / "shared/reference/dlrm_torch.py"


def test_pytorch_with_our_tables_trains_the_same_model():
    """2 servers, losses within 1e-4, AUC within 0.001: or it is exit code 1."""
    why = package.why_not()
    if why:
        pytest.skip(why)
    pytest.importorskip("torch")
    flags = ["--ours", "recps.torch", "--rounds", 1, "--epochs", 2,
             "--batch", 128, "--threads", 1, "--json"]
    try:
        import sklearn  # noqa: F401  # pylint: disable=unused-import
        if CRITEO.exists() and REFERENCE.exists():
            flags += ["--data", CRITEO, "--script", REFERENCE]
    except ImportError:
        pass
    line = json.loads(bench(*flags).stdout)
    assert line["ours"] == "recps.torch" and line["loss_apart_max"] <= 1e-4
    assert line["auc"] == pytest.approx(line["torch_auc"], abs=1e-3)
    assert 0.5 < line["auc"] < 1
    assert line["over_torch_1"] == pytest.approx(
        line["recps_samples_per_second"] / line["torch_1_samples_per_second"])


def test_the_auc_is_a_pair_of_each_kind_compared():
    numpy = pytest.importorskip("numpy")
    sys.path.insert(0, str(SCRIPT.parent))
    import train
    draw = numpy.random.default_rng(6)
    labels = draw.integers(0, 2, 90)
    scores = draw.integers(0, 12, 90) / 12  # with ties
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1]
             for b in scores[labels == 0]]
    assert train.auc_of(labels, scores) == pytest.approx(numpy.mean(pairs))
