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
import pandas as pd
import pytest
from matplotlib.figure import Figure

from streamcal import RecalibrationMap
from streamcal.certificates.theorems import theorem1
from streamcal.mixture.candidates import CANDIDATES, names_of
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


def test_the_picture_beside_peers_is_small_and_its_page_says_what_draws_it() -> None:
    """Its script is not run here: one of the peers is no dependency."""
    picture = (DOCS / "figures" / "peers.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < LARGEST
    page, script = ((DOCS / "figures" / name).read_text() for name in ("README.md", "peers.py"))
    for text in (page, script):
        assert "python docs/figures/peers.py" in text
        assert "pip install model-diagnostics" in text


def test_the_tables_of_the_pages_are_filled() -> None:
    for name in SCRIPTS:
        page = (DOCS / f"{name.replace('_', '-')}.md").read_text()
        tables = re.findall(r"<!-- table: \S+ -->\n(.*?)<!-- end -->", page, re.DOTALL)
        assert tables, name
        assert all(len(table.splitlines()) > 2 for table in tables), name


# What they share


def test_the_same_drawing_gives_the_same_bytes(script: Modules, tmp_path: Path) -> None:
    truth = NormalPair(0.5)

    def picture(folder: Path) -> str:
        folder.mkdir()
        recalibration = script("recalibration")
        scores, labels = truth.sample(4000, np.random.default_rng(0))
        measured = recalibration.measure(scores, labels)
        return drawn(script, recalibration.draw(scores, *measured), folder / "same.svg")

    first, second = picture(tmp_path / "a"), picture(tmp_path / "b")
    assert first == second
    assert len(first) < LARGEST


def test_a_page_takes_its_tables_and_no_others(script: Modules) -> None:
    drawing = script("drawing")
    page = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\n<!-- end -->\n"
    filled = drawing.fill(page, {"x": "new", "y": "too"})
    assert filled == "a\n<!-- table: x -->\nnew\n<!-- end -->\nb\n<!-- table: y -->\ntoo\n<!-- end -->\n"
    assert drawing.fill(filled, {"x": "new", "y": "too"}) == filled
    assert drawing.fill(page, {"x": "new"}).endswith("b\n<!-- table: y -->\n<!-- end -->\n")
    with pytest.raises(ValueError, match=r"'z'"):
        drawing.fill(page, {"x": "new", "z": "nowhere"})


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


def test_label_shift_has_the_four_estimators_and_the_running_priors(script: Modules, tmp_path: Path) -> None:
    label_shift = script("label_shift")
    counts = (10, 300)
    measured = label_shift.risks(2, counts)
    assert list(measured) == ["source", "target", "label_shift", "composite"]
    for mode in ("source", "target", "label_shift"):
        assert (measured["composite"] < measured[mode]).all()
    assert measured["target"][1] < measured["target"][0]
    assert measured["source"][0] == measured["source"][1]  # learns nothing from the target
    alone = [
        label_shift.engines(label_shift.SOURCE_LABELS, np.random.default_rng(seed))["source"].map
        for seed in range(2)
    ]
    assert measured["source"][0] == pytest.approx(
        np.mean([NormalPair(0.1).risk(each).total for each in alone])
    )

    rng = np.random.default_rng(1)
    n, windows = 2000, (160, 800, None)  # at the ends of panes: of 10 labels, or of 50
    labels = (rng.random(n) < np.linspace(0.1, 0.6, n)).astype(np.int8)
    times = np.arange(n, dtype=float)
    found = label_shift.running_priors(times, rng.random(n), labels, windows)
    assert list(found) == list(windows)
    ends = np.arange(label_shift.STRIDE, n + 1, label_shift.STRIDE)
    for window, prior in found.items():
        assert np.array_equal(prior.times, times[ends - 1])
        for end, estimate in zip(ends, prior.priors, strict=True):
            latest = labels[max(0, end - (window * 17 // 16 if window else n)) : end]
            assert estimate == pytest.approx((latest.sum() + 0.5) / (len(latest) + 1))
    followed = {way: np.full((2, 30), 0.1) for way in label_shift.WAYS}
    picture = drawn(script, label_shift.draw(measured, followed, found), tmp_path / "label-shift.svg")
    assert len(picture) < LARGEST


def test_label_shift_shows_how_late_an_estimate_is(script: Modules) -> None:
    label_shift = script("label_shift")
    looks, truth = label_shift.BLOCK_LENGTH // label_shift.LOOK, np.array(label_shift.BLOCKS)
    late = {way: 3 + place for place, way in enumerate(label_shift.WAYS)}
    followed = {way: np.array([np.roll(np.repeat(truth, looks), by)]) for way, by in late.items()}
    for found in followed.values():
        found[0, :10] = truth[0]  # what was rolled over from the end
    table = label_shift.tables({"source": np.ones(7)}, followed)
    assert set(table) == marks("label-shift")
    for (kind, window), by in late.items():
        moves = np.abs(np.diff(truth)).sum()
        shown = "–" if window is None else f"`{window}`"
        delay, error = label_shift.LOOK * (by + 1), moves * by / (len(truth) * looks)
        assert f'| `prior = "{kind}"` | {shown} | {delay:,} | {delay:,} | {error:.3f} |' in table["priors"]


def test_label_shift_feeds_labels_late_with_what_was_seen(script: Modules) -> None:
    """Before labels come, scores give the prior, and labels nothing; after, the standard error is 0.01."""
    label_shift = script("label_shift")
    blocks, length = (0.1,), label_shift.DELAY + 1000
    from_labels = label_shift.jumps("labels", 3000, 0, blocks, length)
    from_scores = label_shift.jumps("scores", None, 0, blocks, length)
    until = label_shift.DELAY // label_shift.LOOK
    assert (from_labels[:until] == 0.5).all()
    assert abs(from_scores[until - 1] - 0.1) < 0.05
    assert abs(from_labels[-1] - 0.1) < 0.05
    assert (from_labels[until:] != 0.5).all()


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


def test_drift_groups_every_candidate(script: Modules) -> None:
    drift = script("drift")
    named = {
        "identity": "identity",
        "composite/curve/all": "composite",
        "composite/curve/scores": "composite",
        "target/platt/0.98": "online Platt",
        "target/isotonic/1000": "isotonic, hinge and curve",
        "target/hinge/all": "isotonic, hinge and curve",
        "target/curve/all": "isotonic, hinge and curve",
    }
    assert {name: drift.group_of(name) for name in named} == named
    assert set(named.values()) == set(drift.GROUPS)
    assert {
        drift.group_of(name) for name in (*names_of(CANDIDATES), *names_of(CANDIDATES, by_scores=True))
    } == set(drift.GROUPS)


def test_drift_by_week_leaves_out_the_week_cut_short(script: Modules) -> None:
    drift = script("drift")
    days = np.array([0, 1, 6.9, 7.1, 13, 14.5, 15])
    losses = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 99.0, 99.0])
    weeks, means = drift.weekly(days * 86_400.0, losses, 0.0)
    assert means.tolist() == [2.0, 15.0]
    assert [week.strftime("%d %H") for week in weeks] == ["01 00", "08 00"]
    # Beginning a day earlier, the third is of the second week, and the fifth of the third.
    assert drift.weekly(days * 86_400.0, losses, -86_400.0)[1].tolist() == [1.5, 6.5]


def test_operations_shows_what_the_store_holds(script: Modules, tmp_path: Path) -> None:
    operations = script("operations")
    shown = operations.run(tmp_path, 1500)
    assert shown["join"]["predictions"] == 1500
    assert shown["maps"][-1]["version"] == shown["engines"][0]["version"]
    assert len((tmp_path / "recalibrated.jsonl").read_text().splitlines()) == 1500
    waited = np.array([0.5, 1.0, 2.0, 10.0])
    maps = operations.published(tmp_path)
    assert [row["version"] for row in maps] == [row["version"] for row in shown["maps"]]
    table = operations.tables(shown, maps, waited)
    days = operations.days_of(maps)
    assert [row["time"] // 86_400 for row in days] == sorted({row["time"] // 86_400 for row in days})
    assert days[-1] == [row for row in maps if row["certificate"]][-1]
    assert operations.refutation([]) == "nothing"
    assert operations.refutation(maps).startswith("identical distribution, since ")
    days[-1]["certificate"]["refuted"] = ["label shift: so it goes"]
    assert operations.refutation(days[-1:]).startswith("label shift, since 0")
    assert operations.refutation(days[-1:]).endswith("May, in 1 versions")
    assert set(table) == marks("operations")
    assert "| 100% of the labels came within | 10.0 h |" in table["show"]
    picture = drawn(script, operations.draw(maps, waited), tmp_path / "operations.svg")
    assert len(picture) < LARGEST


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


def test_months_are_the_means_of_what_was_labelled(script: Modules, tmp_path: Path) -> None:
    """A flight a day, at 23:30 local time: that of 31 May is of May, though it is June in UTC."""
    months = script("months")
    days = pd.date_range("2013-05-01 23:30", "2013-06-30 23:30", tz="America/New_York")
    seconds = days.as_unit("s").astype("int64")
    predictions = pd.DataFrame({"id": days.strftime("%m%d"), "score": 0.25, "time": seconds})
    labels = pd.DataFrame({"id": predictions["id"], "label": days.month == 6, "time": seconds + 60}).iloc[:-1]
    source = pd.DataFrame({"score": [0.2, 0.8] * 50, "label": [0, 1] * 50})
    means = months.by_month(predictions, labels.astype({"label": int}), source)
    assert [day.month for day in means.index] == [5, 6]
    assert means["label"].tolist() == [0.0, 1.0]
    assert means["score"].tolist() == [0.25, 0.25]
    assert "svg" in drawn(script, months.draw(means), tmp_path / "months.svg")
