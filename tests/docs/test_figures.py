"""docs/figures: the scripts run at small sizes on what is known, and what is committed is theirs."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure

from streamcal import RecalibrationMap
from streamcal.certificates.theorems import theorem1
from streamcal.testing import NormalPair

pytestmark = pytest.mark.nightly

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS = ("recalibration", "label_shift", "certificates", "drift", "operations", "late_labels", "llm_judge")
LARGEST = 150_000

Modules = Callable[[str], ModuleType]


@pytest.fixture(scope="module", name="script")
def importer() -> Modules:
    """Return what imports a script of docs/figures by its name."""

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(DOCS / "figures"))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(DOCS / "figures"))

    return load


def drawn(script: Modules, figure: Figure, path: Path) -> str:
    """Save as the scripts do; return the picture."""
    script("drawing").save(figure, path)
    return path.read_text()


def marks(page: str) -> set[str]:
    return set(re.findall(r"<!-- table: (\S+) -->", (DOCS / f"{page}.md").read_text()))


# What is committed


@pytest.mark.parametrize("name", [*SCRIPTS, "months"])
def test_the_committed_picture_is_small_and_undated(name: str) -> None:
    picture = DOCS / "figures" / f"{name.replace('_', '-')}.svg"
    assert 5_000 < picture.stat().st_size < LARGEST
    assert "dc:date" not in picture.read_text()


def test_the_tables_of_the_pages_are_filled() -> None:
    for name in SCRIPTS:
        page = (DOCS / f"{name.replace('_', '-')}.md").read_text()
        tables = re.findall(r"<!-- table: \S+ -->\n(.*?)<!-- end -->", page, re.DOTALL)
        assert tables, name
        assert all(len(table.splitlines()) > 2 for table in tables), name


# What they share


# Each of them


def test_recalibration_is_judged_on_labels_it_has_not_seen(script: Modules) -> None:
    """D(0.5): h* = sigmoid(4x), so that the score sigmoid(x) is far from calibrated."""
    recalibration = script("recalibration")
    truth = NormalPair(0.5)
    scores, labels = truth.sample(20_000, np.random.default_rng(0))
    formed, before, after = recalibration.measure(scores, labels)
    assert len(before.labels) == len(after.labels) == 10_000
    assert np.array_equal(before.forecasts, scores[1::2])
    assert np.array_equal(after.forecasts, formed.predict_many(scores[1::2]))
    # Brier = E[h*(1 − h*)] + R; the standard error of either mean is below 0.002.
    optimal = truth.optimal(scores[1::2])
    noise = float(np.mean(optimal * (1.0 - optimal)))
    for judged, recalibrated in ((before, RecalibrationMap(version=0)), (after, formed)):
        assert judged.brier() == pytest.approx(noise + truth.risk(recalibrated).total, abs=0.01)
    assert after.quality().figures.ece < 0.02 < before.quality().figures.ece
    # A forecast of the rate itself has the entropy for its log loss.
    rate = float(labels.mean())
    constant = recalibration.Judged("", np.full(len(labels), rate), labels)
    assert constant.log_loss() == pytest.approx(-rate * np.log(rate) - (1 - rate) * np.log(1 - rate))
    table = recalibration.tables(before, after)
    assert set(table) == marks("recalibration")
    assert f"{after.brier():.4f}" in table["held-out"]


def test_certificates_are_above_the_truth_and_beside_the_theorem(script: Modules, tmp_path: Path) -> None:
    """Both streams' certificates hold with probability 0.9 at least; on these seeds they do."""
    certificates = script("certificates")
    source = certificates.of_source((100, 1000, 10_000, 100_000), np.random.default_rng(0))
    target = certificates.of_target(10_000, (100, 1000), np.random.default_rng(1))
    assert [point.labels for point in source] == [100, 1000, 10_000, 100_000]
    assert [point.labels for point in target] == [100, 1000]
    assert all(point.true < point.certified <= 1.0 for point in (*source, *target))
    # At ten times the labels the truth falls by 3 to 8 (n^(-2/3) is 4.6) and what is certified falls as well.
    assert source[3].certified < source[2].certified / 3
    for point in source[1:]:
        # The map was formed at the last scheduled count, at most a tenth of the labels ago.
        late, now = (
            theorem1(round(point.labels * share), point.bins, certificates.DELTA, None).risk
            for share in (1 / 1.1, 1.0)
        )
        assert min(1.0, now) <= point.paper <= min(1.0, late)
    assert set(certificates.tables(source, target)) == {"source", "target"} == marks("certificates")
    assert "| 1,000 |" in certificates.tables(source, target)["target"]
    picture = drawn(script, certificates.draw(source, target, 10_000), tmp_path / "certificates.svg")
    assert len(picture) < LARGEST


def test_drift_scores_what_was_said_when_it_was_said(script: Modules, tmp_path: Path) -> None:
    drift, flights = script("drift"), script("flights")
    stream = flights.events()[:5000]
    assert all(a.time <= b.time for a, b in pairwise(stream))
    replays = {name: drift.replay(drift.WAYS[name], stream) for name in ("source", "target", "auto")}
    replays["composite"] = replays["source"]
    predicted = {event.id: event.score for event in stream if hasattr(event, "score")}
    asked = {event.id: event.time for event in stream if hasattr(event, "score")}
    answered = [event for event in stream if not hasattr(event, "score") and event.id in predicted]
    for each in replays.values():
        assert each.labels.tolist() == [event.label for event in answered]
        assert each.scores.tolist() == [predicted[event.id] for event in answered]
        assert each.raw_losses.mean() == pytest.approx(
            np.mean([(predicted[event.id] - event.label) ** 2 for event in answered])
        )
    # Without a source the first 64 labels form the first map: what was predicted before is the score,
    # also where its label came after.
    target = replays["target"]
    first_map = target.times[63]
    before = np.array([asked[event.id] <= first_map for event in answered])
    assert (before & (target.times > first_map)).sum() > 10
    assert np.array_equal(target.forecasts == target.scores, before)
    auto = replays["auto"]
    assert auto.mixtures
    weights = drift.grouped(auto.mixtures)
    assert np.allclose(sum(weights.values()), 1.0)
    for place, published in enumerate(auto.mixtures):
        online = sum(
            weight for name, weight in published.weights.items() if re.fullmatch(r"target/platt/0\.\d+", name)
        )
        assert weights["online Platt"][place] == pytest.approx(online)
    picture = drawn(script, drift.draw(replays), tmp_path / "drift.svg")
    assert len(picture) < LARGEST
    assert drift.tables(replays).keys() == marks("drift")


def test_late_labels_sees_what_each_way_can_see(script: Modules, tmp_path: Path) -> None:
    """On this seed. Of 30,000 labels the standard error is 0.2 points, of exposure some 2."""
    late = script("late_labels")
    both, ones, some = found = late.cases(np.random.default_rng(16))
    day, end = late.LOOK - 1, late.DAYS - 1
    # After a bulk of thousands of negatives come days of positives alone.
    for rate, days in ((0.1, slice(30, late.DOUBLED)), (0.2, slice(90, late.DAYS))):
        assert both["as told"][days].min() < 0.3 * rate
        assert both["as told"][days].max() > 1.3 * rate
        assert both["held"][days] == pytest.approx(rate, abs=0.12 * rate)
        assert both["held"][days].mean() == pytest.approx(rate, abs=0.03 * rate)
    assert np.isnan(both["held"][: late.WEEK - 1]).all()
    assert ones["matured"][day] == pytest.approx(0.1, abs=0.01)
    assert ones["matured"][end] == pytest.approx(0.2, abs=0.01)
    assert np.isnan(ones["matured"][: late.MATURED - 1]).all()
    assert ones["dropped"][day] == 1.0
    # Ages are uniform over 30 days: F is told of the ones, on average 1 − (10 − 30 e⁻³/(1 − e⁻³))/30.
    told = 1.0 - (10.0 - 30.0 * np.exp(-3.0) / (1.0 - np.exp(-3.0))) / 30.0
    assert ones["0 until told"][late.DOUBLED - 1] == pytest.approx(0.1 * told, abs=0.01)
    assert ones["early positives"][day] == pytest.approx(0.2, abs=0.03)
    assert some["labels alone"][end] > 2 * some["every label"][end]
    assert some["weighted"][end] == pytest.approx(some["every label"][end], abs=0.015)
    table = late.tables(found)
    assert set(table) == marks("late-labels")
    assert f"{ones['early positives'][day]:.1%}" in table["cases"]
    assert table["cases"] in (DOCS / "late-labels.md").read_text()
    assert len(drawn(script, late.draw(found), tmp_path / "late-labels.svg")) < LARGEST
