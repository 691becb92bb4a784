"""The eight measurements, one after the other: ``python -m benchmarks [--quick] [--only speed tails]``.

Without ``--quick`` they take hours; each by itself has options of its own: ``python -m benchmarks.speed
--help``. `peers` compares the packages that are installed; ``make peers`` has them all.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Final

from benchmarks.measuring import options

EIGHT: Final = (
    "speed",
    "growth",
    "tails",
    "quality",
    "late_and_rare",
    "segments_and_classes",
    "verdict",
    "peers",
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", default=EIGHT, choices=EIGHT, help="these alone")
    asked = parser.parse_args()
    for name in asked.only:
        start = time.perf_counter()
        print(f"\n{name}", flush=True)
        flags = ["--quick"] * asked.quick + ["--write"] * asked.write
        import_module(f"benchmarks.{name}").main(flags)
        print(f"\n{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
