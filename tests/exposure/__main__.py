"""The simulations of delayed positives: ``python -m tests.exposure`` (30 streams of 100,000, some
minutes)."""

from __future__ import annotations

import argparse

import numpy as np

from tests.exposure.simulation import KINDS, draw, errors, exposed


def main() -> None:
    """Print the error of the rate in thousandths, the mean of all streams, and its standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=30)
    parser.add_argument("--predictions", type=int, default=100_000)
    options = parser.parse_args()
    for kind in KINDS:
        drawn = (draw(kind, options.predictions, seed) for seed in range(options.streams))
        rows = [errors(each, exposed(each)) for each in drawn]
        print(f"{kind}, {options.streams} streams of {options.predictions:,} predictions")
        for name in rows[0]:
            values = 1000.0 * np.array([row[name] for row in rows])
            print(f"  {name:24} {values.mean():7.2f} ± {values.std() / len(values) ** 0.5:.2f}")


if __name__ == "__main__":
    main()
