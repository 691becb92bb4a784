"""The benchmark on real streams: its loaders, its peers, the order of events, its figures and its tables."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from benchmarks import quality, streams
from benchmarks.__main__ import EIGHT
from streamcal.testing import NormalPair

pytestmark = pytest.mark.nightly

SCORES, LABELS = NormalPair(0.4).sample(400, np.random.default_rng(3))
PAIRS = list(zip(SCORES.tolist(), LABELS.tolist(), strict=True))


def test_a_frozen_model_is_fitted_before_its_source_and_its_source_comes_before_the_deployment() -> None:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((300, 2))
    labels = (features[:, 0] + rng.standard_normal(300) > 0).astype(np.int8)
    deployment = streams.Deployment(lambda: (features, labels), "logistic", 100, 50)
    made = streams.deploy(deployment)
    assert made["source_labels"].tolist() == labels[100:150].tolist()
    assert made["labels"].tolist() == labels[150:].tolist()
    # What comes after the first hundred rows does not move the model.
    others = streams.Deployment(
        lambda: (features, np.append(labels[:100], 1 - labels[100:])), "logistic", 100, 50
    )
    np.testing.assert_array_equal(streams.deploy(others)["scores"], made["scores"])
    fitted = LogisticRegression()
    scale = features[:100].mean(axis=0), features[:100].std(axis=0)
    fitted.fit((features[:100] - scale[0]) / scale[1], labels[:100])
    expected = fitted.predict_proba((features[100:] - scale[0]) / scale[1])[:, 1]
    np.testing.assert_allclose(np.append(made["source_scores"], made["scores"]), expected, atol=1e-9)


def fitted(columns: np.ndarray, labels: np.ndarray, identity: list[float], ridge: float) -> np.ndarray:
    """Return the coefficients of least penalised log loss, found by a general optimiser."""
    centre = np.array(identity)

    def loss(at: np.ndarray) -> float:
        exponents = columns @ at
        penalty = ridge / 2 * ((at - centre) ** 2).sum()
        return float(np.logaddexp(0, exponents).sum() - exponents @ labels + penalty)

    def slope(at: np.ndarray) -> np.ndarray:
        return columns.T @ (expit(columns @ at) - labels) + ridge * (at - centre)

    return minimize(loss, centre, jac=slope, method="BFGS", options={"gtol": 1e-7}).x


@pytest.mark.slow
def test_a_stream_and_a_peer_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CSV file with a source, and a class that is found on the path."""
    rows = [f"{score},{label},{'source' if i < 200 else 'target'}" for i, (score, label) in enumerate(PAIRS)]
    (tmp_path / "mine.csv").write_text("\n".join(["score,label,domain", *rows]) + "\n")
    (tmp_path / "right.py").write_text(
        "class Half:\n    def predict(self, score): return 0.5\n    def learn(self, score, label): pass\n"
    )
    read = quality.read(tmp_path / "mine.csv")
    assert read.source_scores is not None
    assert (len(read.source_scores), len(read.scores)) == (200, 200)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(quality, "PEERS", {})
    quality.main(["--stream", str(tmp_path / "mine.csv"), "--peer", "right:Half"])
    row = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| mine.csv | at once")
    )
    assert row.split(" | ")[4] == "right:Half"


@pytest.mark.slow
@pytest.mark.parametrize("name", EIGHT)
def test_each_of_the_eight_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"benchmarks.{name}").main(["--quick"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) > 2
    assert all(line.count(" | ") >= 1 for line in lines)
