"""Speed of many classes: lines of a run in a second, and what a label costs beside labels of two classes.

``python benchmarks/classes_speed.py`` prints a table, in seconds of one processor. Half of the lines are
predictions, each with the scores of all classes by name; half are their labels, which come 100 predictions
later. A label of K classes is told at once, with its prediction, and compared with K such labels of a
`Recalibrator`, in turn, after 2,000 of either.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pages import markdown

from streamcal import MulticlassRecalibrator, Recalibrator

LATE: Final = 100
KNOWN: Final = 2_000
PART: Final = 250


def drawn(classes: int, n: int) -> tuple[NDArray[np.float64], list[int]]:
    """Return scores, which are too flat, and labels."""
    rng = np.random.default_rng(1)
    logits = rng.normal(0.0, 1.5, (n, classes)) + np.log(rng.dirichlet(np.ones(classes)) + 1e-9)
    truth = np.exp(logits - logits.max(axis=1, keepdims=True))
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    scores = truth**0.7
    return np.round(scores / scores.sum(axis=1, keepdims=True), 9), labels.tolist()


def run(classes: int, predictions: int) -> float:
    """Return the lines that a run takes in a second; a run of one before leaves byte code, as installed."""
    scores, labels = drawn(classes, predictions)
    names = [f"c{code:04d}" for code in range(classes)]
    with tempfile.TemporaryDirectory() as folder:
        one, events = Path(folder, "one.jsonl"), Path(folder, "events.jsonl")
        with events.open("w") as file:
            for index in range(predictions + LATE):
                if index < predictions:
                    by_name = dict(zip(names, scores[index].tolist(), strict=True))
                    print(json.dumps({"id": f"e{index}", "scores": by_name}), file=file)
                if index >= LATE:
                    told = {"id": f"e{index - LATE}", "label": names[labels[index - LATE]]}
                    print(json.dumps(told), file=file)
        with events.open() as file:
            one.write_text(next(file))
        command = [sys.executable, "-m", "streamcal", "run", "--classes", ",".join(names)]
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
        for path in (one, events):
            files = ["--events", str(path), "--output", f"{path}.answers.jsonl"]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*command, *files], check=True, capture_output=True, env=environment)  # noqa: S603
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 2 * predictions / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def seconds(engine: Any, scores: list[Any], labels: list[int]) -> float:
    """Return the time of predictions and their labels."""
    start = time.process_time()
    for score, label in zip(scores, labels, strict=True):
        engine.predict_one(score)
        engine.learn_one(score, label)
    return time.process_time() - start


def label(classes: int, parts: int) -> float:
    """Return the cost of a label over that of one of two classes a class, the median over parts."""
    rows, labels = drawn(classes, KNOWN + parts * PART)
    pairs, binary = drawn(2, len(rows))
    many, two = MulticlassRecalibrator([str(code) for code in range(classes)]), Recalibrator()
    scores, one = list(rows), pairs[:, 1].tolist()
    ratios = [
        seconds(many, scores[at], labels[at]) / seconds(two, one[at], binary[at]) / classes
        for at in (slice(0, KNOWN), *(slice(k, k + PART) for k in range(KNOWN, len(rows), PART)))
    ]
    return statistics.median(ratios[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=(3, 10, 26, 100, 1_000))
    parser.add_argument("--predictions", type=int, default=8_000, help="of a run")
    parser.add_argument("--parts", type=int, default=12, help=f"of {PART} labels")
    options = parser.parse_args()
    rows = [
        [f"{count:,}", f"{run(count, options.predictions):,.0f}", f"{label(count, options.parts):.2f}"]
        for count in options.classes
    ]
    print(markdown(("classes", "lines in a second", "label / (classes × binary label)"), rows))


if __name__ == "__main__":
    main()
