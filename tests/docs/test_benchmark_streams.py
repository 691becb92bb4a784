"""The benchmark on real streams: its loaders, its peers, the order of events, its figures and its tables."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from benchmarks import methods, quality, streams
from benchmarks.__main__ import EIGHT
from streamcal import Recalibrator
from streamcal.testing import NormalPair

pytestmark = pytest.mark.nightly

SCORES, LABELS = NormalPair(0.4).sample(400, np.random.default_rng(3))
PAIRS = list(zip(SCORES.tolist(), LABELS.tolist(), strict=True))
PROTECTED = (
    0.774502388264045,
    0.7216979664390137,
    0.7867240253728965,
    0.7492281196368005,
    0.7702247773358167,
)
ASKED = np.concatenate(([0.0, 1.0], SCORES[:50], np.linspace(0.001, 0.999, 200)))


def taught(method: methods.Single, n: int, scores: np.ndarray = SCORES) -> list[float]:
    """Return the answers to `ASKED` after n labels."""
    for score, label in zip(scores[:n].tolist(), LABELS[:n].tolist(), strict=True):
        method.learn(score, label)
    return [method.predict(score) for score in ASKED.tolist()]


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


@pytest.mark.parametrize("name", streams.TRUTHS)
def test_what_is_right_under_a_law_is_the_rate_of_its_samples(name: str) -> None:
    made = streams.draw(name)
    again = streams.draw(name)
    assert all((made[column] == again[column]).all() for column in made)
    residual = made["labels"] - made["truth"]
    # In every tenth of the deployment, and for every tenth of the forecasts: within five standard errors. The
    # probability that one of 240 means is beyond is below 2e-4.
    order = np.argsort(made["truth"], kind="stable")
    for part in (*np.array_split(np.arange(len(order)), 10), *np.array_split(order, 10)):
        variance = (made["truth"][part] * (1.0 - made["truth"][part])).sum()
        assert abs(residual[part].sum()) <= 5.0 * np.sqrt(variance) + 1.0
    rate = made["labels"].mean()
    assert (rate < 0.02) == ("rare" in name)
    assert (len(np.unique(made["scores"])) <= 101) == ("tied" in name)


@pytest.mark.parametrize("decimals", [17, 1])  # 1: many ties
def test_sliding_isotonic_is_that_of_scikit_learn_on_the_window_of_the_last_refit(decimals: int) -> None:
    scores = np.round(SCORES, decimals)
    answers = taught(methods.SlidingIsotonic(window=100, every=30), 369, scores)
    fitted = IsotonicRegression(out_of_bounds="clip").fit(scores[260:360], LABELS[260:360])
    np.testing.assert_allclose(answers, fitted.predict(ASKED), rtol=0, atol=1e-12)


def test_sliding_platt_is_that_of_scikit_learn_on_the_window_of_the_last_refit() -> None:
    def logits(scores: np.ndarray) -> np.ndarray:
        inside = np.clip(scores, 1e-6, 1 - 1e-6)
        return np.log(inside / (1 - inside))[:, np.newaxis]

    # Whether the window begins at its oldest label or in its middle moves the solver's last digits.
    answers = taught(methods.SlidingPlatt(window=100, every=30), 369)
    fitted = LogisticRegression(tol=1e-10).fit(logits(SCORES[260:360]), LABELS[260:360])
    np.testing.assert_allclose(answers, fitted.predict_proba(logits(ASKED))[:, 1], rtol=0, atol=1e-3)


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


def test_protected_classification_is_that_of_the_package() -> None:
    """Check the last five against what `protected-classification` 0.1.5 gave, with numpy 2.4."""
    scores = np.linspace(0.02, 0.98, 40)
    labels = (np.arange(40) % 3 == 0).astype(np.int8)
    served = methods.replay(methods.Protected(), scores, labels)
    np.testing.assert_allclose(served[-5:], PROTECTED, atol=1e-12)


class Counting:
    """Answers with the number of labels learned, and keeps which predictions they answered."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def predict(self, scores: np.ndarray) -> np.ndarray:
        return np.full(len(scores), len(self.places))

    def learn(self, scores: np.ndarray, labels: np.ndarray, places: np.ndarray | None = None, /) -> None:
        assert places is not None
        assert scores.tolist() == places.tolist()
        self.places += places.tolist()


@pytest.mark.parametrize("delay", [0, 1, 3, 20])
def test_an_answer_knows_the_labels_of_events_before_the_delay_alone(delay: int) -> None:
    method = Counting()
    answers = methods.replay(method, np.arange(10.0), np.zeros(10, np.int8), delay, block=1)
    assert answers.tolist() == [max(0, i - delay) for i in range(10)]
    assert method.places == list(range(max(0, 9 - delay)))


def test_a_block_knows_what_came_before_it_in_the_order_of_arrival() -> None:
    method = Counting()
    delays = [5, 0, 0, 2, 1, 0, 0, 0]
    answers = methods.replay(method, np.arange(8.0), np.zeros(8, np.int8), delays, block=3)
    assert answers.tolist() == [0, 0, 0, 2, 2, 2, 6, 6]
    # Those that arrive together come in the order of their predictions: 0, 3, 4 and 5 all arrive at 5.
    assert method.places == [1, 2, 0, 3, 4, 5]


def test_an_engine_in_blocks_is_what_it_is_one_by_one() -> None:
    """Check with labels in another order that each tells when its score was answered."""
    delays = methods.exponential(len(SCORES), 50, np.random.default_rng(0))
    served = methods.replay(methods.Streamcal(), SCORES, LABELS, delays, block=20)
    engine, order = Recalibrator(), methods.arrivals(len(SCORES), delays, 20)
    memos: list[bytes] = []
    learned = 0
    for i, score in enumerate(SCORES.tolist()):
        if i % 20 == 0:
            for place in order[0][learned : order[1][i]].tolist():
                engine.learn_one(SCORES[place], int(LABELS[place]), memo=memos[place])
            learned = order[1][i]
        answer = engine.answer_one(score)
        memos.append(answer.memo)
        assert served[i] == pytest.approx(answer.probability, abs=1e-12)


def test_online_platt_takes_online_newton_steps() -> None:
    method, parameters, curvature = methods.OnlinePlatt(), np.array([1.0, 0.0]), 100.0 * np.eye(2)
    for score, label in zip(SCORES, LABELS, strict=True):
        x = np.array([np.log(score / (1 - score)), 1.0])
        gradient = (expit(parameters @ x) - label) * x
        curvature += np.outer(gradient, gradient)
        parameters = parameters - np.linalg.solve(curvature, gradient) / 0.1
    taught(method, len(SCORES))
    np.testing.assert_allclose(method.parameters, parameters, rtol=1e-9)


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
