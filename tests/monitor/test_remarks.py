"""The closing words: what is said below the table, when it is not, and the status under --strict."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamcal.join.config import JoinConfig
from streamcal.join.rules_c import SURE
from streamcal.monitor.build import build_status
from streamcal.monitor.status import Remark
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.runner import Inputs, Runner
from tests.command_line import streamcal, write_lines

Rows = list[dict[str, Any]]
HOUR = 3_600
DAY = 24 * HOUR


def many(name: str, time: int) -> Rows:
    """Predictions at one time, so many that the clock goes on to it (`streamcal.join.rules_c`)."""
    return [{"id": f"{name}{i}", "score": 0.5, "time": time} for i in range(SURE)]


def pairs(
    n: int = 60, *, label: int | None = None, delay: int = 1, start: int = 0
) -> Iterator[dict[str, Any]]:
    """Predictions, and their labels so much later; true ones, or all the same."""
    for i in range(n):
        score = (i % 10) / 10
        yield {"id": f"a{i}", "score": score, "time": start + 2 * i}
        yield {
            "id": f"a{i}",
            "label": int(i % 10 > 4) if label is None else label,
            "time": start + 2 * i + delay,
        }


def rejected(n: int) -> Rows:
    return [{"id": f"x{i}", "score": 1.5 + i} for i in range(n)]


CASES: dict[str, tuple[Rows, dict[str, Any]]] = {
    "rejected": (
        [*pairs(), *rejected(4), {"id": "a0", "score": 0.5}, {"score": 0.1, "label": 7}],
        {"count": 6, "events": 126, "reasons": {"bad_score": 4, "duplicate_prediction": 1, "bad_label": 1}},
    ),
    "nothing_joined": (
        [row | {"id": row["id"].replace("a", "b")} if "label" in row else row for row in pairs()],
        {"labels": 60, "predictions": 60},
    ),
    "one_class": ([*pairs(label=1)], {"labels": 60, "which": "joined", "label": 1}),
    "milliseconds": ([*pairs(start=1_700_000_000_000)], {"count": 120}),
    "backwards": (
        [*pairs(start=1_000), *({"id": f"b{i}", "score": 0.5, "time": i} for i in range(10))],
        {"count": 10, "events": 130},
    ),
    "unknown_fields": (
        [row | {"timestamp": 1, "lable": 2, "\x1b[31m": 3} for row in pairs(1)],
        {"fields": {"timestamp": 2, "lable": 2, "\x1b[31m": 2}},
    ),
    "late_labels": (
        sorted([*pairs(40, delay=36 * HOUR), *many("b", 30 * HOUR)], key=lambda row: row["time"]),
        {"count": 40, "labels": 40, "option": "label_ttl"},
    ),
    "early_labels": (
        sorted(pairs(delay=-1_000, start=2_000), key=lambda row: row["time"]),
        {"count": 60, "labels": 60},
    ),
    "unmatched_labels": (
        [
            *pairs(10),
            *({"id": f"b{i}", "label": i % 2, "time": 50} for i in range(30)),
            {"id": "last", "score": 0.5, "time": 2 * DAY},
        ],
        {"count": 30, "labels": 40},
    ),
    "expired_predictions": (
        [*pairs(10), *({"id": f"b{i}", "score": 0.5, "time": 50} for i in range(80)), *many("last", 2 * DAY)],
        {"count": 80, "predictions": 122},
    ),
}
ONE_CLASS = "All 60 joined labels are 1: a map of one class says nothing."


def one_class(late: int = 0, n: int = 1_500) -> Rows:
    """Cases of 15 days, three in ten of them positive, told after an hour; those of one class never are."""
    rows = []
    for i in range(n):
        asked, label = 15 * DAY * i // n, int(i % 10 > 6)
        rows.append({"id": f"a{i}", "score": (0.15, 0.35, 0.55)[(i + label) % 3], "time": asked})
        if label != late:
            rows.append({"id": f"a{i}", "label": label, "time": asked + HOUR})
    return sorted(rows, key=lambda row: row["time"])


def labels_for_some(n: int = 6_000) -> Rows:
    """Of every score below 0.3 the label comes after an hour, and of no other."""
    rows = []
    for i in range(n):
        score = (i * 37 % 100) / 100
        rows.append({"id": f"a{i}", "score": score, "time": 60 * i})
        if score < 0.3:
            rows.append({"id": f"a{i}", "label": int(i % 10 > 6), "time": 60 * i + HOUR})
    return sorted(rows, key=lambda row: row["time"])


def found_in(path: Path, ttl: float = DAY) -> list[Remark]:
    pipeline = Pipeline(RunConfig(join=JoinConfig(label_ttl=ttl)))
    source = Connectors().source(str(path))
    Runner(pipeline, Inputs([], [source]), Outputs(NullSink()), None, clock=lambda: 0.0).run()
    found = build_status(pipeline, [source], claims=False).remarks
    source.close()
    return found


@pytest.mark.parametrize("code", CASES)
def test_each_thing_is_said_with_its_figures(code: str, tmp_path: Path) -> None:
    rows, fields = CASES[code]
    found = found_in(write_lines(tmp_path / "e.jsonl", rows))
    (remark,) = (each for each in found if each.code == code)
    assert remark.fields | fields == remark.fields
    assert all(each.words.endswith((".", "?")) and each.words.isprintable() for each in found)


@pytest.mark.parametrize(("late", "held", "code"), [(0, 450, "no_negatives"), (1, 1_050, "no_positives")])
def test_a_class_that_never_comes_is_said(late: int, held: int, code: str, tmp_path: Path) -> None:
    """And not that a map of one class says nothing: none is learned."""
    (remark,) = found_in(write_lines(tmp_path / "e.jsonl", one_class(late)), 30 * DAY)
    assert (remark.code, remark.fields["held"]) == (code, held)
    assert (remark.fields["age"], remark.fields["serves"]) == ("14.08 days", "the score")


def test_labels_that_reach_some_scores_only_are_said(tmp_path: Path) -> None:
    (remark,) = found_in(write_lines(tmp_path / "e.jsonl", labels_for_some()), 30 * DAY)
    assert (remark.code, remark.fields["labels"]) == ("unlabelled_scores", 0)
    assert remark.fields["ranges"] == [(pytest.approx(0.31, abs=0.02), 1.0)]
    assert remark.fields["share"] == pytest.approx(0.3, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [one_class(), labels_for_some()], ids=["one class", "some"])
def test_they_are_said_of_a_store_that_was_gone_on_with(rows: Rows, tmp_path: Path) -> None:
    """And the figures of the delay are those of one run, in the summary and in `show`."""
    said = []
    for name, cuts in (("whole", [len(rows)]), ("parts", [700, 3_000, len(rows)])):
        folder = tmp_path / name
        folder.mkdir()
        store, figures = folder / "s.db", folder / "f.json"
        for cut in cuts:
            done = call(write_lines(folder / "e.jsonl", rows[:cut]), "--store", store, "--summary", figures)
            assert done.returncode == 0, done.stderr
        summary = json.loads(figures.read_bytes())
        assert json.loads(streamcal("show", "--json", store).stdout)["delay"] == summary["delay"]
        assert summary["remarks"] == remarks(done) != []
        said.append((summary["remarks"], summary["delay"]))
    assert said[0] == said[1]
    assert "share of predictions without a label" in streamcal("show", store).stdout


def test_a_deviation_is_the_verdict_and_no_success(tmp_path: Path) -> None:
    """Calibrated on labels that are all wrong, then served to a stream whose scores are right."""
    source = write_lines(
        tmp_path / "s.jsonl", ({"score": (i % 10) / 10, "label": int(i % 10 < 5)} for i in range(5_000))
    )
    events = write_lines(tmp_path / "e.jsonl", pairs(150))
    config = tmp_path / "c.toml"
    config.write_text('[recalibrator]\nmode = "source"\nbins = 10\n')
    given = "--calibration", source, "--config", config
    done = call(events, *given)
    assert (done.returncode, remarks(done)) == (0, [])
    assert "Since the first label forecasts between 0.99 and 1 are 100 points too high" in " ".join(
        done.stdout.split()
    )
    assert call(events, *given, "--strict").returncode == 4


def call(events: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return streamcal("run", "--events", events, "--output", events.parent / "o.jsonl", *more)


def remarks(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("! ")]


@pytest.mark.slow
def test_strict_makes_them_a_status(tmp_path: Path) -> None:
    doubtful = write_lines(tmp_path / "e.jsonl", CASES["one_class"][0])
    done = call(doubtful)
    assert done.returncode == 0
    (word,) = remarks(done)
    assert word.startswith(ONE_CLASS)
    assert done.stdout.splitlines()[-1] == f"! {word}"  # below the table, one line however long
    assert call(doubtful, "--strict").returncode == 4
    good = write_lines(tmp_path / "g.jsonl", pairs())
    assert call(good, "--strict").returncode == 0
    assert (
        call(write_lines(tmp_path / "junk.jsonl", rejected(3)), "--strict").returncode == 1
    )  # the graver one
