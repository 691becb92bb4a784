"""Fuzz every decoder: ``python -m tests.fuzz [--factor F] [--jobs J] [--seed S] [--only NAME] [--verbose]``.

It prints how many inputs there were, how many were accepted, refused and for how many distinct reasons, and
ends with status 1 if one did anything else.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import NamedTuple

from tests.fuzz import documents, lines, states
from tests.fuzz.harness import Report, fuzz, limit_memory


class Target(NamedTuple):
    """A decoder, with the inputs that it is tried with."""

    inputs: int
    """Number of inputs at factor 1. One of lines holds several; see there."""
    try_one: Callable[[Random], int]
    prepare: Callable[[], object] = tuple
    """Function that makes what inputs are changed from, once, in the time of no input."""


TARGETS = {
    "states": Target(1_000, states.try_state, states.corpus),
    "sketches": Target(500, states.try_sketch),
    "maps": Target(1_000, documents.try_map, documents.engines),
    "map rows": Target(500, documents.try_map_row, documents.engines),
    "certificates and options": Target(500, documents.try_model, documents.models),
    "lines of JSON": Target(1_500, lines.try_json),
    "rows of CSV": Target(700, lines.try_csv),
    "runs": Target(15, lines.try_run),
}

_PART = 500  # inputs that a process takes at a time


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--factor", type=float, default=1.0, help="times as many inputs; a test takes 0.05")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TARGETS, action="append", help="this target; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="print a traceback of each kind of failure")
    given = parser.parse_args()
    failed = False
    with ProcessPoolExecutor(given.jobs, initializer=_begin) as pool:
        for name in given.only or TARGETS:
            count = max(1, round(TARGETS[name].inputs * given.factor))
            parts = [
                pool.submit(_run, name, range(start, min(start + _PART, count)), given.seed)
                for start in range(0, count, _PART)
            ]
            report = Report(name)
            for part in parts:
                report.add(part.result())
            print(report, flush=True)
            if given.verbose:
                for kind, (_, trace) in report.examples.items():
                    print(f"\n{kind}\n{trace}")
            failed = failed or bool(report.failures)
    return int(failed)


def _begin() -> None:
    logging.disable()
    limit_memory()


def _run(name: str, inputs: range, seed: int) -> Report:
    TARGETS[name].prepare()
    return fuzz(name, inputs, seed, TARGETS[name].try_one)


if __name__ == "__main__":
    sys.exit(main())
