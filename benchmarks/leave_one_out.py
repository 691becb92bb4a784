"""What each candidate of mode ``auto`` is worth: Brier score and log loss without it over those with all.

``python benchmarks/leave_one_out.py`` prints the table of docs/benchmarks.md, over the first 10,000 events of
the streams of the half that chooses, labels at once and 500 events late; ``--write`` puts it there. It takes
some ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt
from adaptation import engine
from pages import markdown, write
from replay import brier_losses, log_losses, replay
from streams import CHOOSE, load

from streamcal.mixture import mixture
from streamcal.mixture.candidates import CANDIDATES, names_of
from streamcal.mixture.weights import Weights

NAMES: Final = names_of(CANDIDATES)
LEAST: Final = 1000  # labels of a stream; on fewer, chance decides
MOST: Final = 10_000  # events of a stream
DELAYS: Final = (0, 500)


class Without(Weights):
    """Weights of which one candidate has none."""

    __slots__ = ()
    kept: npt.NDArray[np.bool_] = np.ones(len(NAMES), np.bool_)

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """Which candidates take part, bool[K]."""
        return super().active & self.kept

    def _set(self, each: npt.NDArray[np.float64]) -> None:
        each = np.where(self.kept, each, 0.0)
        super()._set(each / each.sum(axis=1, keepdims=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    streams = [name for name in CHOOSE if len(load(name).labels) >= LEAST]
    jobs = [(out, name) for out in (None, *NAMES) for name in streams]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(jobs, pool.map(losses, *zip(*jobs, strict=True)), strict=True))
    rows = []
    for out in NAMES:
        ratios = np.concatenate([found[out, name] / found[None, name] for name in streams], axis=1)
        ends = (f"{value:.4f}" for each in ratios for value in (each.mean(), each.max()))
        rows.append([f"`{out}`", *ends])
    table = markdown(("left out", "Brier: mean", "largest", "log loss: mean", "largest"), rows)
    print(table)
    if options.write:
        write({"leave-one-out": table})


def losses(out: str | None, name: str) -> npt.NDArray[np.float64]:
    """Return Brier score and log loss on one stream without one candidate, float64[2, delays].

    None for the candidate: with all.
    """
    Without.kept = np.array([each != out for each in NAMES])
    mixture.Weights = Without  # type: ignore[misc]
    stream = load(name)
    scores, labels = stream.scores[:MOST], stream.labels[:MOST]
    served = [replay(engine("auto", stream), scores, labels, delay) for delay in DELAYS]
    return np.array([[loss(each, labels).mean() for each in served] for loss in (brier_losses, log_losses)])


if __name__ == "__main__":
    main()
