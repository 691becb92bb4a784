"""The benchmark on real streams: its loaders, its peers, the order of events, its figures and its tables."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from streamcal import Recalibrator
from streamcal.maps.uniform_mass import uniform_mass_binning
from streamcal.testing import NormalPair

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import adaptation
import concept_drift
import elsewhere
import frozen
import further
import hard
import pages
import peers
import replay
import streams
import truths

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


def taught(method: peers.Single, n: int, scores: np.ndarray = SCORES) -> list[float]:
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
    monkeypatch.setattr(further, "FLIGHTS", tmp_path)
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
    deployment = frozen.Deployment(lambda: (features, labels), "logistic", 100, 50)
    made = frozen.deploy(deployment)
    assert made["source_labels"].tolist() == labels[100:150].tolist()
    assert made["labels"].tolist() == labels[150:].tolist()
    # What comes after the first hundred rows does not move the model.
    others = frozen.Deployment(
        lambda: (features, np.append(labels[:100], 1 - labels[100:])), "logistic", 100, 50
    )
    np.testing.assert_array_equal(frozen.deploy(others)["scores"], made["scores"])
    fitted = LogisticRegression()
    scale = features[:100].mean(axis=0), features[:100].std(axis=0)
    fitted.fit((features[:100] - scale[0]) / scale[1], labels[:100])
    expected = fitted.predict_proba((features[100:] - scale[0]) / scale[1])[:, 1]
    np.testing.assert_allclose(np.append(made["source_scores"], made["scores"]), expected, atol=1e-9)


def test_a_forest_votes_in_hundredths() -> None:
    made = frozen.deploy(frozen.FROZEN["cancer-forest"])
    np.testing.assert_allclose(100 * made["scores"], np.round(100 * made["scores"]), atol=1e-9)
    assert (len(made["source_scores"]), len(made["scores"])) == (150, 219)


@pytest.mark.parametrize("name", truths.TRUTHS)
def test_what_is_right_under_a_law_is_the_rate_of_its_samples(name: str) -> None:
    made = truths.draw(name)
    again = truths.draw(name)
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
    answers = taught(peers.SlidingIsotonic(window=100, every=30), 369, scores)
    fitted = IsotonicRegression(out_of_bounds="clip").fit(scores[260:360], LABELS[260:360])
    np.testing.assert_allclose(answers, fitted.predict(ASKED), rtol=0, atol=1e-12)


def test_sliding_platt_is_that_of_scikit_learn_on_the_window_of_the_last_refit() -> None:
    def logits(scores: np.ndarray) -> np.ndarray:
        inside = np.clip(scores, 1e-6, 1 - 1e-6)
        return np.log(inside / (1 - inside))[:, np.newaxis]

    # Whether the window begins at its oldest label or in its middle moves the solver's last digits.
    answers = taught(peers.SlidingPlatt(window=100, every=30), 369)
    fitted = LogisticRegression(tol=1e-10).fit(logits(SCORES[260:360]), LABELS[260:360])
    np.testing.assert_allclose(answers, fitted.predict_proba(logits(ASKED))[:, 1], rtol=0, atol=1e-3)


@pytest.mark.slow
def test_sliding_platt_keeps_its_map_while_all_labels_are_alike() -> None:
    method = peers.SlidingPlatt(window=10, every=10)
    for _ in range(10):
        method.learn(0.3, 0)
    assert method.predict(0.3) == 0.3
    taught(method, 300)
    before = method.predict(0.3)
    for _ in range(20):
        method.learn(0.3, 0)
    assert method.predict(0.3) == before != 0.3


@pytest.mark.parametrize("beta", [False, True])
def test_online_platt_and_beta_take_online_newton_steps(beta: bool) -> None:
    method = peers.OnlineBeta() if beta else peers.OnlinePlatt()
    parameters = np.array([1.0, 1.0, 0.0] if beta else [1.0, 0.0])
    curvature = 100.0 * np.eye(len(parameters))
    for score, label in zip(SCORES, LABELS, strict=True):
        log, log_other = np.log(score), -np.log(1 - score)
        x = np.array([log, log_other, 1.0] if beta else [log + log_other, 1.0])
        gradient = (1 / (1 + np.exp(-parameters @ x)) - label) * x
        curvature += np.outer(gradient, gradient)
        parameters = parameters - np.linalg.solve(curvature, gradient) / 0.1
    taught(method, len(SCORES))
    np.testing.assert_allclose(method.parameters, parameters, rtol=1e-9)


def test_online_platt_says_where_it_would_need_the_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.OnlinePlatt, "RADIUS", 1.01)
    with pytest.raises(ArithmeticError, match=r"\(1\.02\d*, 0\.\d*\) left the ball"):
        peers.OnlinePlatt().learn(0.9, 1)


@pytest.mark.slow
def test_sliding_beta_is_the_least_log_loss_on_the_window_of_the_last_refit() -> None:
    answers = np.array(taught(peers.SlidingBeta(window=200, every=30), 369))
    columns = np.column_stack((np.log(SCORES[160:360]), -np.log1p(-SCORES[160:360]), np.ones(200)))
    parameters, labels = np.zeros(3), LABELS[160:360]
    for _ in range(50):  # Newton's method: both slopes come out positive, so nothing is left out
        rates = 1 / (1 + np.exp(-columns @ parameters))
        hessian = columns.T @ (columns * (rates * (1 - rates))[:, np.newaxis])
        parameters += np.linalg.solve(hessian, columns.T @ (labels - rates))
    assert parameters[:2].min() > 0.0
    inside = np.clip(ASKED, 1e-6, 1 - 1e-6)
    exponents = np.column_stack((np.log(inside), -np.log1p(-inside), np.ones(len(inside)))) @ parameters
    np.testing.assert_allclose(answers, 1 / (1 + np.exp(-exponents)), atol=1e-3)


def test_sliding_beta_is_monotone_where_its_slopes_would_not_be() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(500)
    method = peers.SlidingBeta(window=500, every=500)
    for score in scores.tolist():  # labels follow the distance from ½
        method.learn(score, int(rng.random() < 2 * abs(score - 0.5)))
    answers = [method.predict(score) for score in np.linspace(0, 1, 50).tolist()]
    assert (np.diff(answers) >= 0.0).all()


def test_calibeating_serves_the_mean_label_of_the_bin_of_the_forecast_that_was_made() -> None:
    method, first = peers.OnlinePlattCalibeating(), peers.OnlinePlatt()
    held: list[tuple[int, int]] = []  # (bin, label) of what was learned
    bins: list[int] = []
    # Labels come out of order; a label is never learned before its prediction.
    order, known = replay.arrivals(
        len(SCORES), replay.exponential(len(SCORES), 30, np.random.default_rng(0)), 1
    )
    learned = 0
    for i in range(len(SCORES)):
        for place in order[learned : known[i]].tolist():
            assert place < i
            one = slice(place, place + 1)
            method.learn(SCORES[one], LABELS[one], np.array([place]))
            first.learn(SCORES[place], LABELS[place])
            held.append((bins[place], LABELS[place]))
        learned = known[i]
        forecast = first.predict(SCORES[i])
        bins.append(min(int(10 * forecast), 9))
        alike = [each for where, each in held if where == bins[i]]
        expected = np.mean(alike) if alike else forecast
        assert method.predict(SCORES[i : i + 1]) == pytest.approx(expected, abs=1e-12)


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
    method = peers.SixtyLines()
    method.learn(scores[:1_700], labels[:1_700])  # of the source: fitted, and no weights moved
    order, known = replay.arrivals(2_000, 150, 100)
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


def test_platt_on_all_labels_waits_for_a_positive() -> None:
    method = peers.CumulativePlatt()
    method.learn(SCORES, np.zeros_like(LABELS))
    method.learn(SCORES, np.zeros_like(LABELS))
    assert method.predict(ASKED).tolist() == ASKED.tolist()
    for _ in range(3):
        method.learn(SCORES, LABELS)
    scores = np.tile(SCORES, 5)
    labels = np.concatenate((np.zeros(800), *[LABELS] * 3))
    columns = np.column_stack((np.log(scores / (1 - scores)), np.ones(len(scores))))
    slope, intercept = fitted(columns, labels, [1, 0], 1.0)
    inside = np.clip(ASKED, 1e-7, 1 - 1e-7)
    expected = expit(slope * np.log(inside / (1 - inside)) + intercept)
    np.testing.assert_allclose(method.predict(ASKED), expected, atol=1e-4)


def test_protected_classification_is_that_of_the_package() -> None:
    """Check the last five against what `protected-classification` 0.1.5 gave, with numpy 2.4."""
    scores = np.linspace(0.02, 0.98, 40)
    labels = (np.arange(40) % 3 == 0).astype(np.int8)
    served = replay.replay(peers.Protected(), scores, labels)
    np.testing.assert_allclose(served[-5:], PROTECTED, atol=1e-12)


@pytest.mark.slow  # it makes an environment, once
def test_the_package_of_the_same_name_runs_apart_and_learns_nothing_too_early() -> None:
    try:
        elsewhere.interpreter()
    except elsewhere.UnavailableError as error:
        pytest.skip(f"{elsewhere.NAME}: {error}")
    rng = np.random.default_rng(0)
    scores = rng.random(2_000)
    labels = (rng.random(2_000) < scores**2).astype(np.int8)
    late, _ = elsewhere.forecasts(streams.Stream("s", scores, labels), *replay.arrivals(2_000, 100, 1))
    np.testing.assert_allclose(late[:600], scores[:600], atol=1e-9)  # 499 labels are known to the 599th
    assert np.abs(late[601:] - scores[601:]).max() > 0.05
    changed = np.append(labels[:1_500], 1 - labels[1_500:])
    again, _ = elsewhere.forecasts(streams.Stream("s", scores, changed), *replay.arrivals(2_000, 100, 1))
    np.testing.assert_array_equal(again[:1_600], late[:1_600])
    sourced, seconds = elsewhere.forecasts(
        streams.Stream("s", scores[1_000:], labels[1_000:], scores[:1_000], labels[:1_000]),
        *replay.arrivals(1_000, 100, 1),
    )
    assert seconds > 0.0
    np.testing.assert_array_equal(sourced[600:], late[1_600:])  # the source's labels count as earlier ones


def test_a_package_that_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere.interpreter.cache_clear()
    monkeypatch.setattr(elsewhere, "CACHE", tmp_path / "none")
    monkeypatch.setattr(sys, "version_info", (3, 11, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(elsewhere.UnavailableError, match=r"3\.12 or newer"):
        elsewhere.interpreter()
    elsewhere.interpreter.cache_clear()


def test_cumulative_binning_is_the_papers_on_the_labels_of_the_last_refit() -> None:
    first, later = taught(peers.CumulativeBinning(), 70), taught(peers.CumulativeBinning(), 80)
    assert first == uniform_mass_binning(SCORES[:64], LABELS[:64], 4).predict_many(ASKED).tolist()
    assert (
        later == uniform_mass_binning(SCORES[:79], LABELS[:79], 4).predict_many(ASKED).tolist()
    )  # after 64, 71, 79


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_gives_the_score_until_it_has_a_fit(name: str) -> None:
    method = peers.PEERS[name]()
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
    answers = replay.replay(method, np.arange(10.0), np.zeros(10, np.int8), delay, block=1)
    assert answers.tolist() == [max(0, i - delay) for i in range(10)]
    assert method.places == list(range(max(0, 9 - delay)))


def test_a_block_knows_what_came_before_it_in_the_order_of_arrival() -> None:
    method = Counting()
    delays = [5, 0, 0, 2, 1, 0, 0, 0]
    answers = replay.replay(method, np.arange(8.0), np.zeros(8, np.int8), delays, block=3)
    assert answers.tolist() == [0, 0, 0, 2, 2, 2, 6, 6]
    # Those that arrive together come in the order of their predictions: 0, 3, 4 and 5 all arrive at 5.
    assert method.places == [1, 2, 0, 3, 4, 5]


def test_an_engine_in_the_harness_is_told_when_its_score_was_answered() -> None:
    stream = streams.Stream("s", SCORES, LABELS)
    method = replay.Streamcal("target")
    outcome = adaptation.run(method, stream, 100)
    # Of the last block nobody asked after its labels had come.
    assert (method.engine.target.labels, method.engine.prediction_count) == (200, 400)
    assert outcome.mean("Brier") == pytest.approx(outcome.losses["Brier"].mean())
    assert outcome.losses["Brier"][:100] == pytest.approx((SCORES[:100] - LABELS[:100]) ** 2)


def test_an_engine_in_blocks_is_what_it_is_one_by_one() -> None:
    """Check with labels in another order that each tells when its score was answered."""
    delays = replay.exponential(len(SCORES), 50, np.random.default_rng(0))
    served = replay.replay(replay.Streamcal(), SCORES, LABELS, delays, block=20)
    engine, order = Recalibrator(), replay.arrivals(len(SCORES), delays, 20)
    seen: list[int] = []
    learned = 0
    for i, score in enumerate(SCORES.tolist()):
        if i % 20 == 0:
            for place in order[0][learned : order[1][i]].tolist():
                engine.learn_one(SCORES[place], int(LABELS[place]), prediction_index=seen[place])
            learned, start = order[1][i], engine.prediction_count
        seen.append(start)
        assert served[i] == pytest.approx(engine.predict_one(score), abs=1e-12)
        engine.observe_one(score)


def test_ece_is_the_mean_gap_of_bins_of_equal_mass_with_ties_kept_together() -> None:
    forecasts = np.array([0.1, 0.2, 0.3, 0.8])
    labels = np.array([0, 0, 1, 1], np.int8)
    assert adaptation.ece(forecasts, labels, 2) == pytest.approx(0.5 * abs(0.15 - 0) + 0.5 * abs(0.55 - 1))
    assert adaptation.ece(forecasts, labels, 1) == pytest.approx(abs(0.35 - 0.5))
    # One forecast for all is one bin, however its events are ordered.
    assert adaptation.ece(np.full(4, 0.5), labels, 4) == 0.0


def test_the_worst_gap_is_that_of_the_window_that_is_off_most() -> None:
    excess = np.array([0.5, -0.1, 0.2, -0.4, -0.3, 0.1, 0.0])
    assert adaptation.worst_gap(excess, 2) == pytest.approx(0.2)
    assert adaptation.worst_gap(excess, 3) == pytest.approx(0.2)
    assert adaptation.worst_gap(-excess, 2) == pytest.approx(-0.2)
    assert adaptation.worst_gap(excess[3:], 2) == pytest.approx(-0.35)
    # What is left over belongs to the last window; a short stream is one window.
    assert adaptation.worst_gap(excess[4:], 2) == pytest.approx(-0.2 / 3)
    assert adaptation.worst_gap(excess, 5_000) == pytest.approx(0.0)


@pytest.mark.parametrize(("gap", "text"), [(0.01234, "+0.0123"), (-0.01234, "−0.0123"), (-1e-9, "+0.0000")])
def test_a_gap_has_a_sign(gap: float, text: str) -> None:
    assert adaptation.signed(gap) == text


def test_log_loss_is_clipped() -> None:
    losses = replay.log_losses(np.array([1.0, 0.5, 0.25]), np.array([0, 1, 0], np.int8))
    assert losses == pytest.approx([-np.log(1e-6), -np.log(0.5), -np.log(0.75)])
    assert replay.log_losses(np.array([0.0]), np.array([1]), 1e-7) == pytest.approx(-np.log(1e-7))


def test_the_default_is_compared_with_the_best_peer_by_each_loss() -> None:
    def outcome(brier: np.ndarray, log: np.ndarray) -> adaptation.Outcome:
        return adaptation.Outcome({"Brier": brier, "log loss": log}, 0.0, 0.0, 0.0, 0.0)

    losses = np.random.default_rng(0).random(300)
    outcomes = {
        ("raw scores", "at once"): outcome(losses + 0.1, losses),
        ("composite", "at once"): outcome(0.1 * losses, 0.1 * losses),  # no peer: one of our own
        ("online Platt", "at once"): outcome(losses, 2 * losses),
        ("sixty lines", "at once"): outcome(2 * losses, losses),
        ("auto", "at once"): outcome(1.02 * losses, 1.01 * losses),
        (adaptation.TRUTH, "at once"): outcome(0.9 * losses, losses),  # nobody's forecasts
        ("online Platt", "500 late"): outcome(0.5 * losses, losses),
    }
    found = adaptation.verdict("s", outcomes, "at once").by
    assert (found["Brier"].best, found["Brier"].peer.value) == ("online Platt", pytest.approx(1.02))
    assert (found["log loss"].best, found["log loss"].peer.value) == ("sixty lines", pytest.approx(1.01))
    assert found["Brier"].raw.value == pytest.approx(1.02 * losses.mean() / (losses.mean() + 0.1))
    blocks = 0.02 * losses.reshape(30, 10).mean(axis=1)
    assert found["Brier"].peer.error == pytest.approx(blocks.std(ddof=1) / np.sqrt(30) / losses.mean())


def test_verdicts_are_counted() -> None:
    def compared(peer: float, error: float, raw: float) -> adaptation.Compared:
        return adaptation.Compared("p", adaptation.Ratio(peer, error), adaptation.Ratio(raw, 0.0))

    cases = [compared(0.9, 0.01, 0.9), compared(1.002, 0.01, 1.0021), compared(1.05, 0.03, 1.0)]
    assert adaptation.counted(cases) == ["3", "1", "2", "3", "0.9840", "1.0500", "1"]


def test_long_delays_need_long_deployments() -> None:
    assert adaptation.lateness(219) == ["at once", "500 late"]
    assert adaptation.lateness(4_000) == ["at once", "500 late", "exponential"]
    assert adaptation.lateness(10_000) == list(adaptation.DELAYS)
    assert np.mean(adaptation.delays("exponential", 30_000)) == pytest.approx(2_000, rel=0.03)


def test_hard_cases_are_judged_by_the_mean_over_seeds() -> None:
    def figures(*values: float, least: float | None = None) -> list[list[hard.Figure]]:
        return [[hard.Figure("x", value, 1.0, least)] for value in values]

    found = {"a": figures(0.9, 1.1), "b": figures(0.9, 1.2), "c": figures(0.5, 0.6, least=0.8)}
    lines = hard.table(found).splitlines()[2:]
    assert [line.split(" | ")[-1] for line in lines] == ["yes |", "**no** |", "**no** |"]
    assert lines[2].startswith("| c: x | 0.8 to 1 | 0.55 | 0.5 to 0.6 |")


def test_the_truths_of_hard_cases_have_the_rate_that_they_say() -> None:
    for rate, spread in ((2e-4, 1.4), (0.3, 1.2)):
        scores, labels = hard.calibrated(1_000_000, rate, spread, np.random.default_rng(0))
        # Five standard errors, the scores' spread included: it is at most a few of their means.
        assert scores.mean() == pytest.approx(rate, rel=0.02)
        assert abs(labels.mean() - rate) < 5 * np.sqrt(rate / 1e6)


def test_tables_go_to_their_marks_alone() -> None:
    page = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\nkept\n<!-- end -->\n"
    assert pages.fill(page, {"x": r"new \1"}) == page.replace("old", r"new \1")
    with pytest.raises(ValueError, match="table: z"):
        pages.fill(page, {"z": "new"})


def test_the_page_has_a_mark_for_every_table() -> None:
    halves = (f"adaptation-{half}" for half in adaptation.HALVES)
    names = (*adaptation.PAGE, *halves, "hard", "concept-drift", "false-alarms")
    pages.fill(pages.PAGE.read_text("utf-8"), dict.fromkeys(names, ""))


def test_the_risk_under_a_law_is_that_of_the_papers_distribution() -> None:
    law, pair = concept_drift.Law("D(0.3)", 0.3), NormalPair(0.3)
    served = uniform_mass_binning(SCORES, LABELS, 7)
    assert law.risk(served.predict_many) == pytest.approx(pair.risk(served).total, rel=1e-3)
    assert law.risk(pair.optimal) < 1e-12


@pytest.mark.parametrize("law", concept_drift.DRIFTS, ids=lambda law: law.name)
def test_the_rate_of_a_law_is_that_of_its_samples(law: concept_drift.Law) -> None:
    scores, labels = law.sample(100_000, np.random.default_rng(7))
    logits = np.log(scores / (1 - scores))
    residual = labels - np.interp(logits, concept_drift.X, law.rate)
    bins = np.digitize(logits, np.quantile(logits, np.arange(1, 10) / 10))
    means = np.array([residual[bins == b].mean() for b in range(10)])
    # Hoeffding for each of 10 bins of 10,000, residuals of range 1: one of them fails with probability 1e-6.
    assert np.abs(means).max() < np.sqrt(np.log(2 * 10 / 1e-6) / (2 * 10_000))


def test_a_drift_makes_the_map_before_it_worse_than_the_raw_scores() -> None:
    before = NormalPair(0.3).optimal
    for law in concept_drift.DRIFTS:
        assert law.risk(before) > law.risk(lambda scores: scores)


def test_what_never_happens_counts_as_the_latest() -> None:
    assert concept_drift.spread([300, 100, 200]) == "200 [100, 300]"
    assert concept_drift.spread([300, None, 200]) == "300 [200, never]"
    assert concept_drift.spread([None, 100, None]) == "never [100, never]"
    assert concept_drift.spread([None]) == "never"


def test_a_stream_and_a_peer_of_ones_own(tmp_path: Path) -> None:
    """A CSV file with a source, and a class that is found in the folder where the command is called."""
    rows = [f"{score},{label},{'source' if i < 200 else 'target'}" for i, (score, label) in enumerate(PAIRS)]
    (tmp_path / "mine.csv").write_text("\n".join(["score,label,domain", *rows]) + "\n")
    (tmp_path / "half.py").write_text(
        "class Half:\n    def predict(self, score): return 0.5\n    def learn(self, score, label): pass\n"
    )
    read = adaptation.read(tmp_path / "mine.csv")
    assert read.source_scores is not None
    assert (len(read.source_scores), len(read.scores)) == (200, 200)
    command = [sys.executable, adaptation.__file__, "--stream", "mine.csv", "--peer", "half:Half"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| half:Half |")]
    assert row.split(" | ")[4:6] == ["0.2500", "0.6931"]
    assert "| `composite` |" in done.stdout


def test_a_file_that_is_no_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("p,label\n0.5,1\n")
    with pytest.raises(ValueError, match="columns score and label; it lacks score"):
        adaptation.read(path)
