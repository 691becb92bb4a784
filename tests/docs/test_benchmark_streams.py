"""The benchmark on real streams: its loaders, its peers, the order of events, its figures and its tables."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from benchmarks import measuring, methods, quality, streams
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


def write(folder: Path, **files: list[dict[str, object]]) -> None:
    for name, rows in files.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def test_flights_come_in_the_order_of_their_predictions_and_without_those_that_have_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FLIGHTS", tmp_path)
    monkeypatch.setattr(streams, "CACHE", tmp_path / "cache")
    predictions = [
        {"id": id_, "score": score, "time": 1} for id_, score in (("b", 0.2), ("c", 0.3), ("a", 0.1))
    ]
    labels = [{"id": "a", "label": 1, "time": 2}, {"id": "b", "label": 0, "time": 3}]
    write(tmp_path, predictions=predictions, labels=labels, source=[{"id": "s", "score": 0.5, "label": 1}])
    for _ in range(2):  # the second time from the cache
        stream = streams.load("flights")
        assert stream.scores.tolist() == [0.2, 0.1]
        assert stream.labels.tolist() == [0, 1]
        assert stream.source_scores is not None
        assert stream.source_labels is not None
        assert (stream.source_scores.tolist(), stream.source_labels.tolist()) == ([0.5], [1])
    write(tmp_path, labels=[*labels, {"id": "c", "label": 1, "time": 9}])
    assert streams.load("flights").labels.tolist() == [0, 1, 1]  # other data, other cache


def test_a_bundled_stream_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CACHE", tmp_path)
    stream = streams.load("phishing-lr")
    assert len(stream.scores) == len(stream.labels) == 1250  # as river's documentation says
    assert stream.labels.sum() == 548
    assert stream.source_scores is None
    again = streams.load("phishing-lr")
    np.testing.assert_array_equal(again.scores, stream.scores)


def test_a_stream_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"phishing-lr, .*got 'spam'"):
        streams.load("spam")


def test_every_stream_is_in_one_half_and_both_halves_have_all_kinds() -> None:
    assert sorted((*streams.CHOOSE, *streams.REPORT)) == sorted(streams.NAMES)
    assert len(set(streams.NAMES)) == len(streams.NAMES)
    for kind, names in streams.KINDS.items():
        chosen = [name for name in names if name in streams.CHOOSE]
        assert abs(2 * len(chosen) - len(names)) <= 1, kind
    for half in (streams.CHOOSE, streams.REPORT):
        assert any(name.endswith("-rare") or "-rare-" in name for name in half)
        assert any(name.endswith(("-tied", "-forest")) for name in half)


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


def test_a_forest_votes_in_hundredths() -> None:
    made = streams.deploy(streams.FROZEN["cancer-forest"])
    np.testing.assert_allclose(100 * made["scores"], np.round(100 * made["scores"]), atol=1e-9)
    assert (len(made["source_scores"]), len(made["scores"])) == (150, 219)


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


class Share:
    """Forecasts the share of positives so far, nothing at first, or what its features tell it to."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def predict_proba_one(self, features: dict[str, float]) -> dict[bool, float]:
        if not self.seen:
            return {}
        share = features.get("score", sum(self.seen) / len(self.seen))
        return {True: share, False: 1.0 - share} if any(self.seen) else {False: 1.0}

    def learn_one(self, features: dict[str, float], label: bool) -> None:
        self.seen.append(label)


def test_a_row_is_scored_before_it_is_learned() -> None:
    scored = streams.progressive([({}, 0), ({}, 1), ({}, 1), ({}, 0)], Share())
    np.testing.assert_array_equal(scored["scores"], [0.5, 0.0, 1 / 2, 2 / 3])
    np.testing.assert_array_equal(scored["labels"], [0, 1, 1, 0])


def test_a_model_whose_score_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"row 1 must be in \[0, 1\], got 7"):
        streams.progressive([({}, 1), ({"score": 7.0}, 1)], Share())


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


@pytest.mark.slow
def test_sliding_platt_keeps_its_map_while_all_labels_are_alike() -> None:
    method = methods.SlidingPlatt(window=10, every=10)
    for _ in range(10):
        method.learn(0.3, 0)
    assert method.predict(0.3) == 0.3
    taught(method, 300)
    before = method.predict(0.3)
    for _ in range(20):
        method.learn(0.3, 0)
    assert method.predict(0.3) == before != 0.3


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


def twelve(scores: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the forecasts of the twelve maps, refitted to these labels, as the issue defines them."""

    def columns(which: str, scores: np.ndarray) -> np.ndarray:
        inside = np.clip(scores, 1e-4, 1 - 1e-4)
        x = np.log(inside / (1 - inside))
        parts = {
            "Platt": [x],
            "beta": [np.log(inside), -np.log(1 - inside)],
            "hinge": [x, *(np.clip(x - knot, 0, None) for knot in (-3, -1.5, 0, 1.5, 3))],
        }
        return np.column_stack((*parts[which], np.ones(len(x))))

    found = []
    for which, identity, ridge in (
        ("Platt", [1, 0], 1.0),
        ("beta", [1, 1, 0], 1.0),
        ("hinge", [1, 0, 0, 0, 0, 0, 0], 4.0),
    ):
        for window in (1_000, 5_000, 20_000):
            known = columns(which, scores[-window:])
            at = fitted(known, labels[-window:], identity, ridge)
            found.append(expit(columns(which, asked) @ at))
    for window in (1_000, 5_000, 20_000):
        isotonic = IsotonicRegression(y_min=0.001, y_max=0.999, out_of_bounds="clip")
        isotonic.fit(np.clip(scores[-window:], 1e-4, 1 - 1e-4), labels[-window:])
        found.append(isotonic.predict(np.clip(asked, 1e-4, 1 - 1e-4)))
    return np.array(found)


def test_sixty_lines_are_the_mixture_of_twelve_maps_that_the_issue_defines() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(3_700)
    scores[:3] = 0.0, 1.0, 1e-7
    labels = (rng.random(len(scores)) < 0.8 * scores**2).astype(np.int8)
    method = methods.SixtyLines()
    method.learn(scores[:1_700], labels[:1_700])  # of the source: fitted, and no weights moved
    order, known = methods.arrivals(2_000, 150, 100)
    weights, said, learned, fits = np.full(12, 1 / 12), np.empty((12, 2_000)), 0, 0
    for begin in range(0, 2_000, 100):
        for place in order[learned : known[begin]].tolist():
            label = labels[1_700 + place]
            weights = weights * np.where(label, said[:, place], 1 - said[:, place])
            weights = 0.999 * weights / weights.sum() + 0.001 / 12
        places = order[learned : known[begin]]
        if len(places):
            method.learn(scores[1_700 + places], labels[1_700 + places], places)
        learned = int(known[begin])
        block = scores[1_700 + begin : 1_800 + begin]
        if (1_700 + learned) // 500 != fits:
            fits = (1_700 + learned) // 500
            last = slice(fits * 500)
            maps = twelve(scores[last], labels[last], scores[1_700:])
        said[:, begin : begin + 100] = maps[:, begin : begin + 100]
        expected = weights @ said[:, begin : begin + 100]
        np.testing.assert_allclose(method.predict(block), expected, atol=2e-4)
    assert weights.max() > 0.2  # they have moved


def test_protected_classification_is_that_of_the_package() -> None:
    """Check the last five against what `protected-classification` 0.1.5 gave, with numpy 2.4."""
    scores = np.linspace(0.02, 0.98, 40)
    labels = (np.arange(40) % 3 == 0).astype(np.int8)
    served = methods.replay(methods.Protected(), scores, labels)
    np.testing.assert_allclose(served[-5:], PROTECTED, atol=1e-12)


@pytest.mark.parametrize("name", methods.PEERS)
def test_a_peer_gives_the_score_until_it_has_a_fit(name: str) -> None:
    method = methods.PEERS[name]()
    # The mixture of protected classification leaves the score before any label: it has jumped once.
    tolerance = 0.01 if name == "protected classification" else 1e-12
    assert method.predict(np.array([0.25, 0.5])) == pytest.approx([0.25, 0.5], abs=tolerance)


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


def test_long_delays_need_long_deployments() -> None:
    assert quality.lateness(219) == ["at once", "500 late"]
    assert quality.lateness(4_000) == ["at once", "500 late", "exponential"]
    assert quality.lateness(10_000) == list(quality.DELAYS)
    assert np.mean(quality.delays("exponential", 30_000)) == pytest.approx(2_000, rel=0.03)


def test_a_file_that_is_no_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("p,label\n0.5,1\n")
    with pytest.raises(ValueError, match="columns score and label; it lacks score"):
        quality.read(path)


def test_online_platt_takes_online_newton_steps() -> None:
    method, parameters, curvature = methods.OnlinePlatt(), np.array([1.0, 0.0]), 100.0 * np.eye(2)
    for score, label in zip(SCORES, LABELS, strict=True):
        x = np.array([np.log(score / (1 - score)), 1.0])
        gradient = (expit(parameters @ x) - label) * x
        curvature += np.outer(gradient, gradient)
        parameters = parameters - np.linalg.solve(curvature, gradient) / 0.1
    taught(method, len(SCORES))
    np.testing.assert_allclose(method.parameters, parameters, rtol=1e-9)


def test_ours_is_compared_with_the_raw_scores_and_the_best_peer_by_each_loss() -> None:
    losses = np.random.default_rng(0).random(300)
    made = {
        quality.RAW: (losses + 0.1, losses),
        "online Platt": (losses, 2 * losses),
        "sixty lines": (2 * losses, losses),
        quality.OURS: (1.02 * losses, 1.01 * losses),
    }
    found = quality.case(
        "s", "at once", {a: dict(zip(quality.MEASURES, b, strict=True)) for a, b in made.items()}
    )
    best, ratio = found.best["Brier"]
    assert (best, ratio.value) == ("online Platt", pytest.approx(1.02))
    assert found.best["log loss"][0] == "sixty lines"
    assert found.best["log loss"][1].value == pytest.approx(1.01)
    assert found.raw["Brier"].value == pytest.approx(1.02 * losses.mean() / (losses.mean() + 0.1))
    blocks = 0.02 * losses.reshape(30, 10).mean(axis=1)
    assert ratio.error == pytest.approx(blocks.std(ddof=1) / np.sqrt(30) / losses.mean())
    whole = next(row for row in quality.summary([found]) if row[:2] == ["Brier", "all"])
    assert whole[2:] == ["1", "0", "0", "1.0200", "1.0200"]


def test_a_table_goes_to_its_place_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(measuring, "PAGE", page)
    page.write_text("a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\nkept\n<!-- end -->\n")
    measuring.publish("x", ("k", "v"), [("1", r"\2")], write=True)
    assert page.read_text() == (
        "a\n<!-- table: x -->\n| k | v |\n| --- | ---: |\n| 1 | \\2 |\n<!-- end -->\n"
        "b\n<!-- table: y -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(ValueError, match="one table z, has 0"):
        measuring.publish("z", ("k",), [], write=True)


def test_losses_are_compared_with_those_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "before.json"
    measuring.compared({"a": 2.0, "b": 4.0}, path, None)
    measuring.compared({"a": 3.0, "b": 4.0, "new": 1.0}, None, path)
    rows = capsys.readouterr().out.splitlines()[-4:]
    assert rows == ["| a | 1.50000 |", "| b | 1.00000 |", "| mean | 1.25000 |", "| largest | 1.50000 |"]


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
