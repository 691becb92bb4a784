"""What golden files are made of: engines that have learned, streams of runs, and what these answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal import LabelEvent, PredictionEvent, Recalibrator, ScoreSketch
from streamcal.base.values import Floats
from tests.command_line import streamcal

CLASSES: Final = ("cat", "dog", "fox")
START: Final = 1_700_000_000
GRID: Final = np.linspace(0.0, 1.0, 21)
Labels = npt.NDArray[np.int64]


def labelled(n: int, prior: float, seed: int) -> tuple[Floats, Labels]:
    """Return scores of two decimals, whose states are small, and labels of which so many are 1."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < prior).astype(np.int64)
    logits = rng.standard_normal(n) + 2.0 * labels - 1.0
    return np.round(1.0 / (1.0 + np.exp(-logits)), 2), labels


def binary(**options: Any) -> Recalibrator:
    engine = Recalibrator(**options)
    engine.learn_many(*labelled(300, 0.4, 1), "source")
    engine.learn_many(*labelled(300, 0.2, 2), "target")
    engine.observe_many(labelled(100, 0.2, 3)[0])
    return engine


def weighted() -> Recalibrator:
    engine, (scores, labels) = Recalibrator(), labelled(300, 0.2, 4)
    engine.learn_many(scores, labels, weights=np.where(scores > 0.5, 1.0, 4.0))
    return engine


def joined() -> Recalibrator:
    """Return an engine whose join knows a prediction, a label that came early, and an id that has ended."""
    engine = binary(mode="composite")
    for event in (
        PredictionEvent("waits", 0.7, 1.0),
        LabelEvent("early", 1, 2.0),
        PredictionEvent("ended", 0.2, 3.0),
        LabelEvent("ended", 0, 4.0),
    ):
        engine.step(event)
    return engine


def segmented() -> Recalibrator:
    engine = Recalibrator(mode="composite", segments=["country", "device"])
    scores, labels = labelled(300, 0.3, 5)
    names = [("fr" if i % 3 else "de", "phone" if i % 2 else None) for i in range(300)]
    engine.learn_many(scores, labels, "source", segments=names)
    engine.learn_many(scores, 1 - labels, segments=names)
    return engine


def many_scores(n: int, seed: int, classes: int) -> tuple[Floats, Labels]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    weights = np.round(1.0 + rng.random((n, classes)) + 2.0 * (labels[:, None] == np.arange(classes)), 2)
    return weights / weights.sum(axis=1, keepdims=True), labels


def multiclass(classes: tuple[str, ...]) -> Recalibrator:
    engine = Recalibrator(classes=classes)
    for domain, seed in (("source", 6), ("target", 7)):
        scores, labels = many_scores(80, seed, len(classes))
        engine.learn_many(scores, [classes[label] for label in labels], domain=domain)
    return engine


def sketch(weights: float | None = None) -> ScoreSketch:
    made, (scores, labels) = ScoreSketch(), labelled(200, 0.3, 8)
    made.add(scores, labels, weights=None if weights is None else np.full(200, weights))
    return made


STATES: Final[dict[str, Callable[[], Any]]] = {
    "auto": binary,
    "source": lambda: binary(mode="source"),
    "label_shift": lambda: binary(mode="label_shift"),
    "target": lambda: binary(mode="target", window=128),
    "composite": lambda: binary(mode="composite", prior="scores"),
    "joined": joined,
    "weighted": weighted,
    "segmented": segmented,
    "two_classes": lambda: multiclass(CLASSES[:2]),
    "three_classes": lambda: multiclass(CLASSES),
    "sketch": sketch,
    "weighted_sketch": lambda: sketch(2.5),
}
"""By the name of the file: what makes the object."""


def answers(of: Any) -> Any:
    """Return what an object answers, as JSON."""
    if isinstance(of, ScoreSketch):
        return [of.n, of.n_positives, of.cells.tolist(), of.totals.tolist()]
    if isinstance(of, Recalibrator) and of.by_class is not None:
        return of.predict_many(many_scores(20, 9, len(of.by_class.names))[0]).tolist()
    if isinstance(of, Recalibrator) and of.by_segment is not None:
        some = [("fr", "phone"), ("de", None), ("it", "phone")]
        return [of.predict_many(GRID, [names] * len(GRID)).tolist() for names in some]
    return of.predict_many(GRID).tolist()


class Run(NamedTuple):
    """A run in two halves, the second of which begins where a store says that the first one ended."""

    options: list[str]
    config: str
    many_classes: bool = False

    def first(self) -> str:
        """Return 150 predictions, most of their labels, and lines of several kinds of rejects."""
        rows, labels = self._predictions(0, 150), labelled(150, 0.3, 10)[1].tolist()
        if self.many_classes:
            labels = [CLASSES[label] for label in many_scores(150, 10, 3)[1]]
        named = [{"id": f"a{i}", "label": labels[i], "time": START + i + 50} for i in range(130)]
        named += [named[7] | {"label": labels[8]}, {"id": "early", "label": labels[0], "time": START + 405}]
        odd = [
            "{",
            json.dumps(rows[3]),
            json.dumps({"id": "x", "score": 2.0, "scores": [2.0], "time": START}),
        ]
        every = sorted([*rows, *named], key=lambda row: row["time"])
        return "".join(line + "\n" for line in [*map(json.dumps, every), *odd])

    def later(self) -> str:
        """Return predictions, before whose labels no map changes, and then labels of the first half."""
        rows = self._predictions(500, 520)
        label: Any = "dog" if self.many_classes else 1
        rows += [rows[0] | {"id": "early", "time": START + 530}]
        rows += [{"id": f"a{i}", "label": label, "time": START + 540} for i in (129, 135, 140, 140)]
        return "".join(json.dumps(row) + "\n" for row in rows)

    def go(self, folder: Path, events: str, **outputs: str) -> list[dict[str, Any]]:
        """Run over events with the store of a folder; return the rows that were answered."""
        (folder / "run.toml").write_text(self.config)
        name = folder / f"{len(list(folder.glob('*.jsonl')))}.jsonl"
        name.write_text(events)
        given = ["--config", folder / "run.toml", "--store", folder / "store.db", *self.options]
        more = [each for option, path in outputs.items() for each in (f"--{option}", folder / path)]
        done = streamcal("run", "--events", name, "--output", "-", *given, *more, status=0)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _predictions(self, start: int, end: int) -> list[dict[str, Any]]:
        scores: list[dict[str, Any]] = [
            {"score": score} for score in labelled(end - start, 0.3, 10 + start)[0].tolist()
        ]
        if self.many_classes:
            scores = [{"scores": row} for row in many_scores(end - start, 10 + start, 3)[0].tolist()]
        more = [
            {"id": f"a{start + i}", "time": START + start + i, "country": "fr" if i % 3 else "de"}
            for i in range(end - start)
        ]
        keys = [{} if self.many_classes else {"key": f"k{i % 2}"} for i in range(end - start)]
        return [row | key | score for row, key, score in zip(more, keys, scores, strict=True)]


RUNS: Final = {
    "plain": Run(["--mode", "composite", "--keep", "country"], ""),
    "segments": Run(["--mode", "composite"], '[segments]\nfields = ["country"]\nown_engines = 1\n'),
    "classes": Run(["--classes", ",".join(CLASSES)], "", many_classes=True),
}
"""By the name of the files: runs."""
