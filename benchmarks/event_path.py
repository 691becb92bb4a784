"""The way of a micro-batch through the code: which files it enters to read, process and commit it.

    python benchmarks/event_path.py [--files]

One prediction and its label come in one file, at once, to a run with a store whose engine, in mode `auto`,
has learned 400 labels; neither makes a version due. Its commit is an entry in the store's journal; "state" is
the commit of the whole state, every half second or less often. Compiled modules run as the Python that they
also are, so that each call of a function in `streamcal` or `streamcal_connectors` is seen. ``--files`` names
the files.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import random
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

LABELS = 400


class Uncompiled(MetaPathFinder):
    """Finder of the Python of compiled modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a compiled module's Python file; None for any other module."""
        if not fullname.startswith("streamcal.") or not fullname.endswith("_c") or not path:
            return None
        return importlib.util.spec_from_file_location(fullname, f"{path[0]}/{fullname.rpartition('.')[2]}.py")


sys.meta_path.insert(0, Uncompiled())
# ruff: noqa: E402  # the finder comes first
import streamcal_connectors

import streamcal
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import RowKind, SinkOptions, SourceOptions
from streamcal.run.runner import Inputs, Runner

ROOTS = [str(Path(module.__file__ or "").parent) + "/" for module in (streamcal, streamcal_connectors)]


class Trace:
    """Functions that are called, by the part of a micro-batch that calls them."""

    def __init__(self) -> None:
        parts = ("read", "process", "commit", "state")
        self.parts: dict[str, set[CodeType]] = {part: set() for part in parts}
        self.part = "read"

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a call; for `sys.setprofile`."""
        code = frame.f_code
        if event == "return" and code is Pipeline.process.__code__:
            self.part = "commit"
        if event != "call" or not code.co_filename.startswith(tuple(ROOTS)):
            return
        if code is Pipeline.process.__code__:
            self.part = "process"
        elif code is Runner._record.__code__:  # where the whole state is committed
            self.part = "state"
        self.parts[self.part].add(code)


def files(functions: set[CodeType]) -> list[str]:
    """Return the files of functions, without the folders above the packages."""
    return sorted({"/".join(Path(code.co_filename).parts[-3:]) for code in functions})


def trace(folder: Path) -> Trace:
    """Send a prediction and its label through a run."""
    events, connectors, found = folder / "events.jsonl", Connectors(), Trace()
    rng, ended = random.Random(1), False  # noqa: S311  # a seeded stream

    def send(number: int) -> str:
        score = rng.random()
        label = int(rng.random() < score)
        return f'{{"id": "{number}", "score": {score}}}\n{{"id": "{number}", "label": {label}}}\n'

    events.write_text("".join(map(send, range(LABELS))))

    def after(*_: object) -> None:
        nonlocal ended
        if pipeline.tally.events == 2 * LABELS:
            with events.open("a") as more:
                more.write(send(LABELS))
            sys.setprofile(found.watch)
        ended = pipeline.tally.events > 2 * LABELS  # the run's end commits the whole state

    store = connectors.store(str(folder / "run.db"))
    pipeline = Pipeline()
    source = connectors.source(str(events), SourceOptions(follow=True))
    kinds: tuple[RowKind, ...] = ("answers", "rejects", "maps")
    outputs = Outputs(*(connectors.sink(f"{folder}/{kind}.jsonl", SinkOptions(rows=kind)) for kind in kinds))
    inputs = Inputs([], [source])
    ticks = itertools.count(0.0, 0.02)  # so few seconds that the second micro-batch goes to the journal
    Runner(pipeline, inputs, outputs, store, clock=lambda: next(ticks), after=after, stop=lambda: ended).run()
    sys.setprofile(None)
    store.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many files a micro-batch enters.")
    parser.add_argument("--files", action="store_true", help="name the files")
    named = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        found = trace(Path(folder))
    event = set().union(*(functions for part, functions in found.parts.items() if part != "state"))
    for part, functions in [*found.parts.items(), ("all but the state", event)]:
        entered = files(functions)
        print(f"{part}: {len(entered)} files, {len(functions)} functions")
        if named and part in found.parts:
            print("".join(f"  {name}\n" for name in entered), end="")


if __name__ == "__main__":
    main()
