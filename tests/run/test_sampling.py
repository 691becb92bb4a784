"""Budgets of labels: what is asked for, its chance, and the run that is killed and draws again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from streamcal.certificates.record import ARRIVAL_OF_DRAWN
from streamcal.events import Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.frames import backtest
from streamcal.quality.sampled_sums import SampledSums
from streamcal.run.config import RunConfig, read_config
from streamcal.run.order import MicroBatch, TimesRead
from streamcal.run.outcome import PipelineState
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import RejectRow
from streamcal.sampling import Sampler
from streamcal.sketch.decoding import decoded, encoded
from tests.command_line import streamcal
from tests.uncompiled import Nowhere

BUDGET: Any = {"sampling": {"share": 0.2, "seed": 3}, "columns": {"keep": ["country"]}}


def predictions(count: int) -> list[Event]:
    scores = np.random.default_rng(4).beta(1.0, 3.0, count).tolist()
    return [PredictionEvent(f"a{n}", score, 60.0 * n, kept=("de",)) for n, score in enumerate(scores)]


def labels(rows: list[Any]) -> list[Event]:
    return [LabelEvent(row["id"], int(row["score"] > 0.4), row["time"] + 90.0) for row in rows if row["ask"]]


def process(pipeline: Pipeline, events: list[Event]) -> tuple[list[Any], list[RejectRow]]:
    """Return the rows of answers, as JSON has them, and rejects."""
    batch = MicroBatch(events, {}, {}, {}, TimesRead(), [(Nowhere(), 0)], [0], None)
    done = pipeline.process(batch)
    return msgspec.to_builtins(list(done.answers)), done.rejects


@pytest.mark.parametrize("budget", [{"share": 0.1}, {"labels_per_day": 100}])
def test_a_budget_is_spent_on_average_and_reaches_all(budget: Any) -> None:
    """The sum of 20,000 draws has a standard deviation below 44: it is 6 of these off in 1 of 10⁹ runs."""
    sampler, rng = Sampler(**budget), np.random.default_rng(2)
    p = rng.beta(0.5, 5.0, 20_000)
    times = np.cumsum(rng.exponential(86.4, len(p)))  # 1,000 a day
    chances = np.array([sampler.propensity(*each) for each in zip(p.tolist(), times.tolist(), strict=True)])
    asked = [sampler.asks(f"x{n}", chance) for n, chance in enumerate(chances.tolist())]
    assert abs(sum(asked) - 2000) < 6 * 44
    assert chances[100:].min() > 0.015
    assert chances[p > 0.3].mean() > 1.5 * chances[p < 0.01].mean()


@pytest.mark.parametrize("wrong", [0.0, 25.0])
def test_neither_a_pause_nor_a_wrong_clock_spends_a_budget_at_once(wrong: float) -> None:
    """After 5 days without events, or an event 25 days ahead, each day had 2 to 6 times its labels."""
    sampler, day = Sampler(labels_per_day=100, even=1.0), 86_400.0
    times = np.concatenate([np.arange(10_000), np.arange(15_000, 20_000)]) * day / 1000
    times[9_000] += wrong * day
    chances = np.array([sampler.propensity(0.1, time) for time in times.tolist()])
    assert chances[2000:] == pytest.approx(0.1, abs=0.01)


def test_all_are_asked_for_where_fewer_come_than_the_budget() -> None:
    sampler = Sampler(labels_per_day=100)
    assert {sampler.propensity(0.1 / (1 + n % 9), 3600.0 * n) for n in range(2, 500)} == {1.0}


def test_a_number_in_a_day_needs_times(tmp_path: Path) -> None:
    """Without, all labels were asked for, and only the first decisions ever were to act."""
    for table, option in (("sampling", "labels_per_day"), ("decision", "capacity_per_day")):
        options = RunConfig.model_validate({table: {option: 100}})
        block: list[Event] = [PredictionEvent(f"a{n}", 0.5, 1.0 if n == 2 else None) for n in range(4)]
        rows, rejects = process(Pipeline(options), block)
        assert [row["id"] for row in rows] == ["a2", "a3"]
        assert [row.code for row in rejects] == 2 * ["missing_time"]
        assert option in rejects[0].reason
    lines, output = tmp_path / "lines.jsonl", tmp_path / "rows.jsonl"
    lines.write_text("".join(f'{{"id": {n}, "score": 0.5}}\n' for n in range(40)))
    config = tmp_path / "options.toml"
    config.write_text("[sampling]\nlabels_per_day = 100")
    streamcal("run", "--config", str(config), "--events", str(lines), "--output", str(output))
    assert not output.read_text()
    sampler = Sampler(labels_per_day=100)
    for bad, words in (((0.5,), "time of the first prediction"), ((0.5, 1.7e12), "must be in seconds")):
        with pytest.raises(ValueError, match=words):
            sampler.propensity(*bad)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got nan"):
        sampler.propensity(np.nan, 0.0)
    with pytest.raises(ValueError, match="must be 0 or 1, got nan"):
        sampler.learn(0.5, np.nan)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "budget", [{"even": 0.5}, {"seed": 3}, {"share": True}, {"share": 0.1, "seed": 2**64}]
)
def test_a_table_that_samples_nothing_or_else_is_refused(budget: Any) -> None:
    with pytest.raises(ValueError, match=r"nothing is sampled|valid number|less than"):
        RunConfig.model_validate({"sampling": budget})


def test_shards_share_what_is_a_number_in_a_day() -> None:
    """Each of twelve shards asked for the labels of all."""
    tables = {"sampling": {"labels_per_day": 300}, "decision": {"capacity_per_day": 24}}
    options = RunConfig.model_validate(tables).of_shard(12)
    assert options.sampling.sampler == Sampler(labels_per_day=25.0)
    assert options.decision.capacity_per_day == 2
    with pytest.raises(ValueError, match=r"5 shards cannot share 24 equally: .* such as 20"):
        RunConfig.model_validate(tables).of_shard(5)


def test_another_seed_is_refused_on_a_store() -> None:
    """By another seed, half of the labels that had been asked for were rejected."""
    first = Pipeline(RunConfig.model_validate(BUDGET))
    process(first, predictions(50))
    own, engines = first.snapshot()
    resumed = Pipeline(RunConfig.model_validate({"sampling": {"share": 0.2, "seed": 4}}))
    with pytest.raises(ValueError, match="seed = 3, by which it asked for"):
        resumed.restore(decoded(encoded(own), PipelineState, "a run"), engines, packs=first.join.packs())


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({}, "set one"), ({"share": 2.0}, "at most 1, got 2.0"), ({"share": 0.1, "even": 0.0}, "got 0.0")],
)
def test_a_budget_out_of_range_is_refused(budget: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Sampler(**budget)


@pytest.mark.parametrize("even", [0.5, 1.0])
def test_a_run_asks_for_some_and_takes_the_labels_of_these_alone(even: float) -> None:
    budget = {**BUDGET, "sampling": {**BUDGET["sampling"], "even": even}}
    pipeline = Pipeline(RunConfig.model_validate(budget))
    rows, _ = process(pipeline, predictions(800))
    assert list(rows[0])[-3:] == ["country", "ask", "propensity"]
    asked, weights = labels(rows), [1 / row["propensity"] for row in rows if row["ask"]]
    assert 128 <= len(asked) < 220
    assert process(pipeline, asked) == ([], [])
    other = next(row["id"] for row in rows if not row["ask"])
    refused = [LabelEvent(other, 1), LabelEvent("unknown", 1), LabelledEvent(0.5, 1, "both")]
    _, rejects = process(pipeline, refused)
    assert [row.code for row in rejects] == 3 * ["label_not_asked"]
    assert repr(other) in rejects[0].reason
    assert "there was no prediction with id 'unknown' before" in rejects[1].reason
    _, again = process(pipeline, asked[:1])
    assert [row.code for row in again] == ["duplicate_label"]
    quality = pipeline.quality
    assert quality.before.sketch.mass.labels == pytest.approx(sum(weights))
    sums = quality.sums()
    assert isinstance(sums, SampledSums)
    assert 0.8 * 800 < sums.predictions <= 800
    assert sums.labels <= len(asked)
    (certificate,) = (engine.certificate for engine in pipeline.engines.values())
    assert certificate.refuted == ()
    assert (ARRIVAL_OF_DRAWN in certificate.assumptions) == (even < 1.0)
    assert certificate.risk < 0.25
    assert sums.promised == pytest.approx(sum(row["propensity"] for row in rows[: sums.predictions]))


def test_a_run_that_was_killed_draws_and_judges_again_alike() -> None:
    options, events = RunConfig.model_validate(BUDGET), predictions(600)
    whole, first = Pipeline(options), Pipeline(options)
    rows, _ = process(whole, events[:300])
    assert process(first, events[:300])[0] == rows
    own, engines = first.snapshot()
    resumed = Pipeline(options)
    state = decoded(encoded(own), PipelineState, "a run")
    resumed.restore(state, engines, packs=first.join.packs())
    for part in (labels(rows), events[300:]):
        ours = process(resumed, part)
        assert ours == process(whole, part)
        assert not ours[1]
    assert resumed.engines[None].certificate == whole.engines[None].certificate
    assert resumed.engines[None].to_bytes() == whole.engines[None].to_bytes()
    assert resumed.quality.verdict() == whole.quality.verdict()


def test_what_is_drawn_is_not_learned_one_class_first() -> None:
    """Labels 0 take two days: the first 1 were learned alone: several times the score's squared error."""
    rng, n, block = np.random.default_rng(7), 16_000, 500
    scores = rng.beta(1.0, 20.0, n)
    labels = rng.random(n) < 0.5 * scores
    times = 40.0 * np.arange(n)
    pipeline, waiting = Pipeline(RunConfig.model_validate({"sampling": {"share": 0.2}})), list[LabelEvent]()
    served = np.empty(n)
    for begin in range(0, n, block):
        now, part = float(times[begin]), range(begin, begin + block)
        come = sorted((each for each in waiting if each.time <= now), key=lambda each: each.time)
        waiting = [each for each in waiting if each.time > now]
        process(pipeline, come)
        events: list[Event] = [PredictionEvent(str(i), float(scores[i]), float(times[i])) for i in part]
        for i, row in zip(part, process(pipeline, events)[0], strict=True):
            served[i] = row["probability"]
            if row["ask"]:
                time = float(times[i]) + (60.0 if labels[i] else 172_800.0)
                waiting.append(LabelEvent(str(i), int(labels[i]), time))
    errors = ((served - 0.5 * scores) ** 2).reshape(-1, 4000).mean(axis=1)
    of_score = (0.25 * scores**2).reshape(-1, 4000).mean(axis=1)
    assert (errors <= 1.2 * of_score).all()
    assert errors[-1] < 0.5 * of_score[-1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[columns]\npropensity = "p"', "leave out .columns. propensity"),
        ('[columns]\nkeep = ["ask"]', "'ask' of their own"),
        ('[segments]\nfields = ["country"]', "every label"),
        ('[join]\nmissing_labels = "negative"\nlabel_delay_limit = "P1D"', "count for others"),
    ],
)
def test_options_that_do_not_go_with_a_budget_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(f"[sampling]\nlabels_per_day = 300\n{text}")
    with pytest.raises(ValueError, match=reason):
        read_config(path)


def test_a_backtest_shows_what_a_budget_would_have_told() -> None:
    events = pd.DataFrame(
        {"id": range(2000), "time": 60.0 * np.arange(2000), "score": np.linspace(0, 1, 2000)}
    )
    labels = events.assign(label=(events["score"] > 0.5).astype(int), time=events["time"] + 60.0)
    with pytest.warns(UserWarning, match="label that was not asked for"):
        done = backtest(events, labels[["id", "time", "label"]], sampling={"share": 0.1, "even": 1})
    verdict = done._status.verdict
    assert 140 < done._status.join.joined < 260
    assert re.search(r"(of|Over) [\d,]+ predictions,", verdict.evidence)
