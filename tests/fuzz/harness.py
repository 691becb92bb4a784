"""Runs inputs through a target: counts what became of them, and limits the memory and time of each."""

from __future__ import annotations

import random
import re
import resource
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

SECONDS: Final = 10.0
"""Of the processor, that one input may take. The slowest of all known takes a tenth of it."""

MEMORY: Final = 1 << 30
"""Bytes that all inputs of a process may take, beyond what it has when it begins."""

_SHOWN: Final = 40  # kinds of failures


class RefusedError(Exception):
    """An input was refused as documented; the message is the reason."""


class TooSlowError(BaseException):
    """An input took longer than `SECONDS`."""


class Report:
    """What became of the inputs of one target."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.accepted = self.refused = self.events = 0
        self.reasons: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.examples: dict[str, tuple[str, str]] = {}
        """For each kind of failure: the number of an input, and the traceback."""
        self.slowest = 0.0
        """Seconds of the processor that one input took at most."""
        self.seconds = 0.0
        """How long all of them took."""

    def add(self, other: Report) -> None:
        """Add what became of other inputs of the same target."""
        self.accepted += other.accepted
        self.refused += other.refused
        self.events += other.events
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.reasons += other.reasons
        self.failures += other.failures
        self.examples |= other.examples

    @property
    def inputs(self) -> int:
        """How many inputs there were."""
        return self.accepted + self.refused + self.failures.total()

    def __str__(self) -> str:
        line = (
            f"{self.target}: {self.inputs:,} inputs, {self.accepted:,} accepted, {self.refused:,} refused for"
            f" {len(self.reasons):,} reasons, {self.failures.total():,} failed;"
            f" {self.inputs / self.seconds:,.0f} inputs, {self.events / self.seconds:,.0f} events a second;"
            f" the slowest input {self.slowest:.2f} s"
        )
        kinds = [
            f"\n  {count:,} × {kind}\n    first at {self.examples[kind][0]}"
            for kind, count in self.failures.most_common(_SHOWN)
        ]
        return line + "".join(kinds)


def limit_memory() -> None:
    """Let this process take no more than `MEMORY` from now on."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123  # Linux only, as is the limit
        pages = int(statm.read().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))


def fuzz(target: str, inputs: range, seed: int, try_one: Callable[[random.Random], int]) -> Report:
    """Run many inputs.

    Parameters
    ----------
    inputs, seed
        the numbers of the inputs, and the seed of all: input i is made from the text ``"seed/i"``.
    try_one
        makes one input and tries it. It returns the number of events that were taken, raises `RefusedError`
        if the input was refused as documented, and anything else if something is wrong.
    """
    report = Report(target)
    signal.signal(signal.SIGPROF, _too_slow)
    begun = time.perf_counter()
    for index in inputs:
        name = f"{seed}/{index}"
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                report.events += try_one(random.Random(name))  # no secret
            report.accepted += 1
        except RefusedError as error:
            report.refused += 1
            report.reasons[_kind(str(error))] += 1
        except (Exception, TooSlowError) as error:  # whatever comes is a finding
            kind = f"{type(error).__name__} in {_place(error)}: {_kind(str(error))}"
            report.failures[kind] += 1
            report.examples.setdefault(kind, (name, traceback.format_exc()))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        report.slowest = max(report.slowest, time.process_time() - start)
    report.seconds = time.perf_counter() - begun
    return report


def _kind(message: str) -> str:
    """Return a message without its numbers and quoted values: what it says, not of which input."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+,-]*", "…", message)[:100]


def _place(error: BaseException) -> str:
    """Return the function of streamcal, or of the target, in which an error arose."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "streamcal" in f.filename or "fuzz" in f.filename
    ]
    own = [f for f in frames if "fuzz" not in f.filename] or frames
    return f"{Path(own[-1].filename).stem}.{own[-1].name}"


def _too_slow(*_: object) -> NoReturn:
    raise TooSlowError
