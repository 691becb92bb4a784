"""The way of one event through the code: which files it enters, and how often it changes between them.

    python benchmarks/event_path.py [--steps]

One prediction, then its label, each a micro-batch of its own, go through the memory connector, the runner,
the join and an engine in mode `auto` into three sinks. The engine has learned 300 source labels and 100
target labels before, so it serves a map, and neither event makes a version due.

The trace begins with the call of the source's `poll` and ends when the last sink's `commit` has returned.
Every call of a Python function in `streamcal` or `streamcal_connectors`, and every return to one, is a step
in the file of that function; code outside these packages is skipped.

files
    how many different files the steps are in.
switches
    how many steps are in another file than the step before.

``--steps`` prints every switch, with the function that it enters or goes back to.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import streamcal_connectors  # noqa: F401  # its files count

from streamcal.run.ports import SinkOptions, SourceOptions
from tests.memory import MemoryConnector, MemorySink, MemorySource, logs

try:
    from streamcal.run.pipeline import Pipeline
    from streamcal.run.runner import Inputs, Outputs, Runner
except ImportError:  # as modules were named before they had packages, so that old commits can be measured
    from streamcal.pipeline import Pipeline  # type: ignore[import-not-found,no-redef]
    from streamcal.runner import Inputs, Outputs, Runner  # type: ignore[import-not-found,no-redef]

SOURCE_LABELS, TARGET_LABELS = 300, 100
ROOTS = {
    name: str(Path(sys.modules[name].__file__ or "").parent)
    for name in ("streamcal", "streamcal_connectors", "tests.memory")
}
FIRST, LAST = MemorySource.poll.__code__, MemorySink.commit.__code__


@dataclass
class EventPath:
    """The steps of one event, each a file and a function; they end with the last commit of a sink."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    end: int = 0

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a call or a return; for `sys.setprofile`."""
        if event not in ("call", "return") or file_of(frame) is None:
            return
        if not self.steps and frame.f_code is not FIRST:
            return
        at: FrameType | None = frame
        if event == "return":
            at = frame.f_back
            while at is not None and file_of(at) is None:
                at = at.f_back
        if at is not None:
            self.steps.append((file_of(at) or "", at.f_code.co_qualname))
        if event == "return" and frame.f_code is LAST:
            self.end = len(self.steps)

    @property
    def files(self) -> list[str]:
        """The files, in the order in which they are entered first."""
        return list(dict.fromkeys(file for file, _ in self.steps[: self.end]))

    @property
    def switches(self) -> list[tuple[str, str]]:
        """The steps that are in another file than the step before."""
        return [new for old, new in pairwise(self.steps[: self.end]) if new[0] != old[0]]


def file_of(frame: FrameType) -> str | None:
    """Return the file of a frame, from its package on; None if it is in neither."""
    name = frame.f_code.co_filename
    for package, root in ROOTS.items():
        if name.startswith(root):
            return package + name.removeprefix(root)
    return None


def trace() -> dict[str, EventPath]:
    """Send a prediction and its label through a run; return the path of each."""
    rng = np.random.default_rng(1)
    for name in ("source", "events", "answers", "rejects", "maps"):
        logs.pop(name, None)

    def send(name: str, **event: object) -> None:
        logs[name].partitions[""].append(msgspec.json.encode(event))

    for score in rng.random(SOURCE_LABELS).tolist():
        send("source", score=score, label=int(rng.random() < score))
    for number, score in enumerate(rng.random(TARGET_LABELS).tolist()):
        send("events", id=f"{number}", score=score)
        send("events", id=f"{number}", label=int(rng.random() < score))

    coming = {"prediction": {"id": "one", "score": 0.3}, "label": {"id": "one", "label": 1}}
    paths: dict[str, EventPath] = {}

    def after(*_: object) -> None:
        """Send the next event, and watch it, once the one before is through."""
        sys.setprofile(None)
        if coming and len(logs["answers"].partitions[""]) >= TARGET_LABELS:
            kind = next(iter(coming))
            send("events", **coming.pop(kind))
            paths[kind] = EventPath()
            sys.setprofile(paths[kind].watch)

    connector = MemoryConnector()
    inputs = Inputs(
        [connector.source("memory:source", SourceOptions(domain="source"))],
        [connector.source("memory:events", SourceOptions())],
    )
    outputs = Outputs(
        *(connector.sink(f"memory:{name}", SinkOptions()) for name in ("answers", "rejects", "maps"))
    )
    Runner(Pipeline(), inputs, outputs, None, clock=lambda: 0.0, after=after).run()
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Print how many files one event enters, and the switches between."
    )
    parser.add_argument("--steps", action="store_true", help="print every switch")
    steps = parser.parse_args().steps
    for kind, path in trace().items():
        print(f"{kind}: {len(path.files)} files, {len(path.switches)} switches")
        for file, function in path.switches if steps else []:
            print(f"  {file}  {function}")


if __name__ == "__main__":
    main()
