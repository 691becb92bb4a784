"""Runs that die at a step of a commit, as by kill -9: in this process, so that steps have names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner


class DiedError(BaseException):
    """Stands for kill -9."""


def watch(reached: Callable[[str], None], target: Any, what: str, *methods: str) -> None:
    """Tell before and after each call of methods of one argument; what is told may raise."""

    def around(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def watched(argument: Any) -> Any:
            reached(f"before {what}")
            done = call(argument)
            reached(f"after {what}")
            return done

        return watched

    for method in methods:
        setattr(target, method, around(getattr(target, method)))


def counted(step: str, dies_at: int | None) -> Callable[[str], None]:
    """Return what dies when a step is reached for this time; None: never."""
    count = 0

    def reached(which: str) -> None:
        nonlocal count
        count += which == step
        if which == step and count == dies_at:
            raise DiedError

    return reached


def driven(
    store: Path,
    sources: Sequence[str],
    sinks: Sequence[str],
    step: str,
    dies_at: int | None,
    *,
    options: SourceOptions | None = None,
    stop: Callable[[Pipeline], bool] = lambda _: False,
    written: list[int] | None = None,
) -> Pipeline:
    """Run to the end, or die at a commit, before or after the first sink's or the store's."""
    connectors, pipeline, reached = Connectors(), Pipeline(), counted(step, dies_at)
    with ExitStack() as opened:
        opened.callback((kept := connectors.store(str(store))).close)
        made: list[Any] = [connectors.sink(url) for url in sinks]
        read = [connectors.source(url, options or SourceOptions()) for url in sources]
        for each in (*made, *read):
            opened.callback(each.close)
        watch(reached, made[0], "the broker", "commit")
        watch(reached, kept, "the store", "commit", "keep")
        if written is not None:
            write = made[0].write
            made[0].write = lambda rows: (written.append(len(rows)), write(rows))
        inputs, clock = Inputs([], read), time.monotonic
        Runner(pipeline, inputs, Outputs(*made), kept, clock=clock, stop=lambda: stop(pipeline)).run()
    return pipeline
