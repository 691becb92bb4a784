"""The simulations of delayed positives.

``python -m benchmarks.delayed`` prints how well the rate is estimated at the end of the stream (30 streams
of 100,000, some minutes), and with ``--served`` how well mode ``auto`` serves it in the last 15 days, against
the same engine that waits for final labels (10 streams of 12,000, some minutes).
"""

from __future__ import annotations

import argparse

import numpy as np

from tests.delayed.simulation import CHANGE, DAYS, KINDS, TELLINGS, Drawn, draw, errors, followed
from tests.delayed.stream import Stream, events_of


def main() -> None:
    """Print the error of the rate in thousandths, the mean of all streams, and its standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--served", action="store_true")
    parser.add_argument("--streams", type=int)
    parser.add_argument("--predictions", type=int)
    options = parser.parse_args()
    streams = options.streams or (10 if options.served else 30)
    predictions = options.predictions or (12_000 if options.served else 100_000)
    for kind in (*KINDS, *TELLINGS) if options.served else KINDS:
        drawn = (draw(kind, predictions, seed) for seed in range(streams))
        rows = [served(each) if options.served else errors(each, followed(each)) for each in drawn]
        print(f"{kind}, {streams} streams of {predictions:,} predictions")
        for name in rows[0]:
            values = 1000.0 * np.array([row[name] for row in rows])
            print(f"  {name:24} {values.mean():7.2f} ± {values.std() / len(values) ** 0.5:.2f}", flush=True)


def served(drawn: Drawn) -> dict[str, float]:
    """Return the root mean square error of what is served in the last 15 days, and in thirds of these."""
    errors, lately = {}, drawn.times > DAYS - CHANGE
    days = drawn.times[lately] - (DAYS - CHANGE)
    for name, early in (("wait", False), ("exposure", True)):
        stream = Stream(drawn, delayed=early)
        stream.take(events_of(drawn))
        squares = np.square(stream.served - drawn.rates)[lately]
        errors[name] = float(np.sqrt(squares.mean()))
        for begin in (0, 5, 10):
            third = (days > begin) & (days <= begin + 5)
            errors[f"{name}, days {begin + 1} to {begin + 5}"] = float(np.sqrt(squares[third].mean()))
    return errors


if __name__ == "__main__":
    main()
