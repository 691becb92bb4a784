"""What each candidate of mode ``auto`` is worth: the Brier score without it over that with all.

``python benchmarks/leave_one_out.py`` prints the table of docs/drift.md, over the streams of the half that
chooses, labels at once and 500 late; ``--write`` puts it there. A candidate is left out from the first target
label on; before it, nothing is changed.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt
from adaptation import DELAYS, engine, replay
from pages import DRIFT, markdown, write
from streams import CHOOSE, load

from streamcal.mixture import mixture
from streamcal.mixture.names import NAMES
from streamcal.mixture.weights import Weights

LEAST: Final = 1000  # labels of a stream; on fewer, chance decides


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
    parser.add_argument("--write", action="store_true", help="put the table into docs/drift.md")
    options = parser.parse_args()
    streams = [name for name in CHOOSE if len(load(name).labels) >= LEAST]
    jobs = [(out, name) for out in (None, *NAMES) for name in streams]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(jobs, pool.map(briers, *zip(*jobs, strict=True)), strict=True))
    rows = []
    for out in NAMES:
        ratios = np.concatenate([found[out, name] / found[None, name] for name in streams])
        rows.append([f"`{out}`", f"{ratios.mean():.4f}", f"{ratios.max():.4f}"])
    table = markdown(("left out", "mean", "largest"), rows)
    print(table)
    if options.write:
        write({"leave-one-out": table}, DRIFT)


def briers(out: str | None, name: str) -> npt.NDArray[np.float64]:
    """Return the Brier score on one stream for each delay, without one candidate; None: with all."""
    Without.kept = np.array([each != out for each in NAMES])
    mixture.Weights = Without  # type: ignore[misc]
    stream = load(name)
    scores, labels = stream.scores.tolist(), stream.labels.tolist()
    served = [np.array(replay(engine("auto", stream), scores, labels, delay)) for delay in DELAYS]
    return np.array([np.mean(np.square(forecasts - stream.labels)) for forecasts in served])


if __name__ == "__main__":
    main()
