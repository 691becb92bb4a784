"""The benchmark on real streams: its loaders, its peers, the order of events, its figures and its tables."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from streamcal.maps.uniform_mass import uniform_mass_binning
from streamcal.testing import NormalPair

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import adaptation
import concept_drift
import elsewhere
import frozen
import pages
import peers
import streams
import truths

SCORES, LABELS = NormalPair(0.4).sample(400, np.random.default_rng(3))
ASKED = np.concatenate(([0.0, 1.0], SCORES[:50], np.linspace(0.001, 0.999, 200)))


def taught(method: peers.Method, n: int, scores: np.ndarray = SCORES) -> list[float]:
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


def test_online_platt_takes_online_newton_steps() -> None:
    curvature, parameters = 100.0 * np.eye(2), np.array([1.0, 0.0])
    for score, label in zip(SCORES, LABELS, strict=True):
        x = np.array([np.log(score / (1 - score)), 1.0])
        gradient = (1 / (1 + np.exp(-parameters @ x)) - label) * x
        curvature += np.outer(gradient, gradient)
        parameters = parameters - np.linalg.solve(curvature, gradient) / 0.1
    method = peers.OnlinePlatt()
    taught(method, len(SCORES))
    np.testing.assert_allclose([method.slope, method.intercept], parameters, rtol=1e-9)


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
    waiting: list[tuple[float, int, int]] = []
    for score, label in zip(SCORES.tolist(), LABELS.tolist(), strict=True):
        forecast = first.predict(score)
        place = min(int(10 * forecast), 9)
        alike = [each for where, each in held if where == place]
        assert method.predict(score) == pytest.approx(np.mean(alike) if alike else forecast, abs=1e-12)
        waiting.append((score, label, place))
        if len(waiting) > 30:  # labels come 30 events late
            score, label, place = waiting.pop(0)
            method.learn(score, label)
            first.learn(score, label)
            held.append((place, label))


@pytest.mark.slow  # it makes an environment, once
def test_the_package_of_the_same_name_runs_apart_and_learns_nothing_too_early() -> None:
    try:
        elsewhere.interpreter()
    except elsewhere.UnavailableError as error:
        pytest.skip(f"{elsewhere.NAME}: {error}")
    rng = np.random.default_rng(0)
    scores = rng.random(2_000)
    labels = (rng.random(2_000) < scores**2).astype(np.int8)
    late, _ = elsewhere.forecasts(streams.Stream("s", scores, labels), 100)
    np.testing.assert_allclose(late[:600], scores[:600], atol=1e-9)  # 499 labels are known to the 599th
    assert np.abs(late[601:] - scores[601:]).max() > 0.05
    changed = np.append(labels[:1_500], 1 - labels[1_500:])
    again, _ = elsewhere.forecasts(streams.Stream("s", scores, changed), 100)
    np.testing.assert_array_equal(again[:1_600], late[:1_600])
    sourced, seconds = elsewhere.forecasts(
        streams.Stream("s", scores[1_000:], labels[1_000:], scores[:1_000], labels[:1_000]), 100
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
    assert method.predict(0.25) == pytest.approx(0.25, abs=1e-12)


class Counting:
    """Answers with the number of labels learned, and checks that they come in order."""

    def __init__(self) -> None:
        self.learned = 0

    def predict(self, score: float) -> float:
        return self.learned

    def learn(self, score: float, label: int) -> None:
        assert score == self.learned
        self.learned += 1


@pytest.mark.parametrize("delay", [0, 1, 3, 20])
def test_an_answer_knows_the_labels_of_events_before_the_delay_alone(delay: int) -> None:
    answers = adaptation.replay(Counting(), [float(i) for i in range(10)], [0] * 10, delay)
    assert answers == [max(0, i - delay) for i in range(10)]


def test_an_engine_in_the_harness_is_told_when_its_score_was_answered() -> None:
    stream = streams.Stream("s", SCORES, LABELS)
    method = adaptation.Streamcal("target")
    outcome = adaptation.run(method, stream, delay=100)
    assert (method.engine.target.labels, method.engine.seen) == (300, 400)
    assert outcome.brier == pytest.approx(outcome.losses.mean())
    assert outcome.losses[:100] == pytest.approx((SCORES[:100] - LABELS[:100]) ** 2)


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
    loss = adaptation.log_loss(np.array([1.0, 0.5, 0.25]), np.array([0, 1, 0], np.int8))
    assert loss == pytest.approx(-(np.log(1e-6) + np.log(0.5) + np.log(0.75)) / 3)


def test_the_default_is_compared_with_the_best_of_the_others() -> None:
    def outcome(losses: np.ndarray) -> adaptation.Outcome:
        return adaptation.Outcome(losses, float(losses.mean()), 0.0, 0.0, 0.0, 0.0, 0.0)

    losses = np.random.default_rng(0).random(300)
    outcomes = {
        ("raw scores", 0): outcome(losses + 0.1),
        ("online Platt", 0): outcome(losses),
        ("auto", 0): outcome(1.02 * losses),
        (adaptation.TRUTH, 0): outcome(0.9 * losses),  # nobody's forecasts
        ("online Platt", 500): outcome(0.5 * losses),
    }
    best, ratio, error = adaptation.default_and_best(outcomes, 0)
    assert (best, ratio) == ("online Platt", pytest.approx(1.02))
    outcomes["auto", 500] = outcome(0.4 * losses)
    assert adaptation.default_and_best(outcomes, 500)[:2] == ("online Platt", pytest.approx(0.8))
    blocks = 0.02 * losses.reshape(30, 10).mean(axis=1)
    assert error == pytest.approx(blocks.std(ddof=1) / np.sqrt(30) / losses.mean())


def test_tables_go_to_their_marks_alone() -> None:
    page = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\nkept\n<!-- end -->\n"
    assert pages.fill(page, {"x": r"new \1"}) == page.replace("old", r"new \1")
    with pytest.raises(ValueError, match="table: z"):
        pages.fill(page, {"z": "new"})


def test_the_page_has_a_mark_for_every_table() -> None:
    halves = (f"adaptation-{half}" for half in adaptation.HALVES)
    names = (*adaptation.PAGE, *halves, "concept-drift", "false-alarms")
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
