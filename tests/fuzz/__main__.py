"""Fuzz every decoder: ``python -m tests.fuzz [--factor F] [--seed S] [--only NAME] [--verbose]``.

It prints how many inputs there were, how many were accepted, refused and for how many distinct reasons, and
ends with status 1 if one did anything else.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from random import Random

from tests.fuzz import documents, states
from tests.fuzz.harness import fuzz, limit_memory

TARGETS: dict[str, tuple[int, Callable[[Random], int]]] = {
    "states": (2_000, states.try_state),
    "sketches": (500, states.try_sketch),
    "maps": (1_000, documents.try_map),
    "map rows": (500, documents.try_map_row),
    "certificates and options": (500, documents.try_model),
    "options in TOML": (500, documents.try_toml),
}
"""How many inputs at factor 1, and the target, by name."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--factor", type=float, default=1.0, help="times as many inputs as a test runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TARGETS, action="append", help="this target; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="print a traceback of each kind of failure")
    given = parser.parse_args()
    logging.disable()
    limit_memory()
    failed = False
    for name in given.only or TARGETS:
        count, try_one = TARGETS[name]
        report = fuzz(name, round(count * given.factor), given.seed, try_one)
        print(report, flush=True)
        if given.verbose:
            for kind, (_, trace) in report.examples.items():
                print(f"\n{kind}\n{trace}")
        failed = failed or bool(report.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
