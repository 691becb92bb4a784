"""Whether a hot path has become slower: instructions per event, against the numbers kept in `gate.json`.

``make bench-gate`` fails if a path takes more than 1.3 times the instructions that were kept; ``--write``
keeps those of now, which is for a commit that says why. Instructions are counted by valgrind: the same
figures within one part in a hundred, whatever else the machine does, in a quarter of a minute. They are
not time: for that see `benchmarks.speed`. They depend on the version of Python, so that of each is kept.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

import streamcal
from streamcal import LabelEvent, PredictionEvent, Recalibrator, RecalibratorConfig
from streamcal.events.codec import JsonDecoder
from streamcal.testing import NormalPair

KEPT = Path(__file__).with_name("gate.json")
MOST = 1.3
MARK = "getppid"
"""The C function before which valgrind writes down what was counted since the last time."""

STATES = "STREAMCAL_GATE"
"""The environment variable that names the folder of the prepared states."""

Work = Callable[[], object]


MODES: Final = ("target", "composite", "auto")


def prepare(folder: Path) -> None:
    """Write the state of an engine in service of each mode."""
    for mode in MODES:
        made = Recalibrator(RecalibratorConfig(mode=mode))
        scores, labels = NormalPair(0.5).sample(20_000, np.random.default_rng(1))
        made.learn_many(scores, labels, "source" if mode == "composite" else "target")
        (folder / mode).write_bytes(made.to_bytes())


def engine(mode: str) -> Recalibrator:
    """Return the engine that `prepare` has written."""
    return Recalibrator.from_bytes(Path(os.environ[STATES], mode).read_bytes())


def events(n: int) -> tuple[np.ndarray, np.ndarray]:
    return NormalPair(0.5).sample(n, np.random.default_rng(2))


def learn_one(mode: str, n: int) -> Work:
    made, (scores, labels) = engine(mode), events(n)
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))

    def work() -> None:
        for score, label in pairs:
            made.learn_one(score, label)

    return work


def predict_one(mode: str, n: int) -> Work:
    made, scores = engine(mode), events(n)[0].tolist()

    def work() -> None:
        for score in scores:
            made.predict_one(score)

    work()  # tables for looking up are made when they are first needed
    return work


def predict_and_learn(mode: str, n: int) -> Work:
    made, (scores, labels) = engine(mode), events(n)
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))

    def work() -> None:
        for score, label in pairs:
            made.predict_one(score)
            made.learn_one(score, label)

    return work


def learn_many(mode: str, n: int) -> Work:
    made, (scores, labels) = engine(mode), events(n)

    def work() -> None:
        for start in range(0, n, 1000):
            made.learn_many(scores[start : start + 1000], labels[start : start + 1000])

    return work


def learn_late(n: int) -> Work:
    """Labels that are 500 late, told so by memos."""
    made, (scores, labels) = engine("auto"), events(n)
    seen = [made.answer_many(scores[start : start + 500]).memos for start in range(0, n, 500)]

    def work() -> None:
        for start, memos in zip(range(0, n, 500), seen, strict=True):
            part = slice(start, start + 500)
            made.learn_many(scores[part], labels[part], memos=memos)

    return work


def predict_many(mode: str, n: int) -> Work:
    made, scores = engine(mode), events(n)[0]

    def work() -> None:
        for start in range(0, n, 1000):
            made.predict_many(scores[start : start + 1000])

    work()
    return work


def step(mode: str, n: int) -> Work:
    """Each prediction, and the label of the hundredth before it."""
    made, (scores, labels) = engine(mode), events(n)
    stream: list[PredictionEvent | LabelEvent] = []
    for index, score in enumerate(scores.tolist()):
        stream.append(PredictionEvent(f"e{index}", score))
        if index >= 100:
            stream.append(LabelEvent(f"e{index - 100}", int(labels[index - 100])))

    def work() -> None:
        for event in stream:
            made.step(event)

    return work


def decode(n: int) -> Work:
    decoder = JsonDecoder("prediction")
    lines = [msgspec.json.encode({"id": f"e{i}", "score": s}) for i, s in enumerate(events(n)[0].tolist())]

    def work() -> None:
        for line in lines:
            decoder.decode(line)

    return work


def certificate(n: int) -> Work:
    made, scores = engine("auto"), events(100)
    made.learn_many(*scores)

    def work() -> None:
        for _ in range(n):
            made.learn_one(0.5, 1)
            made.certificate  # noqa: B018

    return work


PATHS: dict[str, tuple[Callable[[int], Work], int]] = {
    "learn_one, target": (partial(learn_one, "target"), 2000),
    "learn_one, auto": (partial(learn_one, "auto"), 512),
    "predict_one and learn_one, auto": (partial(predict_and_learn, "auto"), 512),
    "learn_many, target": (partial(learn_many, "target"), 10_000),
    "learn_many, auto, 500 late": (learn_late, 1000),
    "predict_one, target": (partial(predict_one, "target"), 2000),
    "predict_one, auto": (partial(predict_one, "auto"), 2000),
    "predict_one, composite": (partial(predict_one, "composite"), 2000),
    "predict_many, target": (partial(predict_many, "target"), 20_000),
    "predict_many, composite": (partial(predict_many, "composite"), 20_000),
    "step, prediction and label, target": (partial(step, "target"), 1000),
    "decode a JSON line": (decode, 2000),
    "certificate, auto": (certificate, 2),
}
"""How each path is made, for so many events."""


def run_counted() -> None:
    """Run every path, between two marks; what is done before, and once in a process, is not counted."""
    gc.disable()
    works = []
    for make, n in PATHS.values():
        make(max(n // 20, 1))()
        works.append(make(n))
    gc.collect()
    with subprocess.Popen(["callgrind_control", "--instr=on", str(os.getpid())]) as control:  # noqa: S603, S607
        while control.poll() is None:  # valgrind listens only while something runs
            pass
    for work in works:
        os.getppid()
        work()
        os.getppid()


def counted() -> dict[str, float]:
    """Return instructions per event of each path."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "counts")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        command += [f"--dump-before={MARK}", f"--callgrind-out-file={out}"]
        prepare(Path(folder))
        environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", STATES: folder}
        done = subprocess.run(  # noqa: S603
            [*command, sys.executable, __file__, "--run"], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr)
        totals = {}
        for index, (name, (_, n)) in enumerate(PATHS.items()):
            dump = Path(f"{out}.{2 * index + 2}").read_text()
            (total,) = re.findall(r"^totals: (\d+)$", dump, re.MULTILINE)
            totals[name] = int(total) / n
        return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"keep the numbers of now in {KEPT.name}")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_counted()
        return
    if not streamcal.compiled:
        sys.exit(
            "nothing is compiled, so there is nothing to compare: run `make venv` where there is a C compiler"
        )
    if shutil.which("valgrind") is None:
        sys.exit(
            "valgrind counts the instructions and was not found: install it, or let CI run `make bench-gate`"
        )
    python = ".".join(platform.python_version_tuple()[:2])
    kept: dict[str, dict[str, int]] = json.loads(KEPT.read_text())
    now, before = counted(), kept.get(python, {})
    slower = []
    for name, count in now.items():
        ratio = count / before[name] if name in before else math.nan
        print(f"{name:40}{count:14,.0f} instructions an event{ratio:8.2f} x")
        if ratio > MOST:
            slower.append(name)
    if options.write:
        kept[python] = {name: round(count) for name, count in now.items()}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    elif not before:
        print(f"nothing was compared: {KEPT.name} has no numbers for Python {python}")
    elif missing := now.keys() ^ before.keys():
        sys.exit(f"{KEPT.name} has other paths: {', '.join(sorted(missing))}; write it anew with --write")
    elif slower:
        sys.exit(f"more than {MOST} times the instructions that were kept: {', '.join(slower)}")


if __name__ == "__main__":
    main()
