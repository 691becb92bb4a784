"""Print the test vectors for readers of maps in other languages: JSON, a case to a line.

`python examples/languages/vectors.py > examples/languages/maps.json`
"""

from __future__ import annotations

import json
import math

import numpy as np

from streamcal import RecalibrationMap

EVERYWHERE = [0.0, 5e-324, 1e-300, 2.0**-41, 2.0**-40, 1e-9, 0.1, 0.3, 0.5, 0.7, 1.0 - 1e-9, 1.0 - 2.0**-40]
EVERYWHERE += [1.0 - 2.0**-41, math.nextafter(1.0, 0.0), 1.0]


def maps() -> list[RecalibrationMap]:
    """Return one map of each kind there is: without and with a correction, of one bin or knot and of many."""
    rng = np.random.default_rng(30)
    edges = (0.0, *np.sort(rng.random(19)).tolist(), 1.0)
    values = tuple(np.sort(rng.random(20)).tolist())
    knots = tuple(np.sort(rng.uniform(-12.0, 12.0, 20)).tolist())
    log_odds = tuple(np.sort(rng.normal(0.0, 4.0, 20)).tolist())
    every = [((1.0, 1.0)), (0.3, 2.0), (0.0, 1.0), (1.5, 0.0)]
    made = [RecalibrationMap(version=0)]
    made += [RecalibrationMap(version=1, weights=weights) for weights in every[1:]]
    made += [RecalibrationMap(version=2, edges=(0.0, 1.0), values=(0.25,))]
    made += [RecalibrationMap(version=3, edges=edges, values=values, weights=weights) for weights in every]
    made += [RecalibrationMap(version=4, edges=(0.0, 0.5, 1.0), values=(0.0, 1.0), weights=(0.3, 2.0))]
    far = (0.0, 2.226e-308, 1e-300, 1e-30, 0.5, 1.0 - 2.0**-45, 1.0 - 2.0**-53, 1.0)  # to where doubles end
    made += [RecalibrationMap(version=4, edges=far, values=values[:7])]
    made += [RecalibrationMap(version=5, kind="linear", knots=(0.5,), log_odds=(-1.0,))]
    made += [
        RecalibrationMap(version=6, kind="linear", knots=knots, log_odds=log_odds, weights=weights)
        for weights in every
    ]
    ends = (-27.73, -27.729, 0.0, 27.73)  # beyond the scores, and values that all but reach 0 and 1
    made += [RecalibrationMap(version=7, kind="linear", knots=ends, log_odds=(-700.0, -30.0, 0.0, 700.0))]
    return made


def main() -> None:
    rng, lines = np.random.default_rng(31), []
    for each in maps():
        at = [*each.edges[1:-1], *(1.0 / (1.0 + math.exp(-knot)) for knot in each.knots)]
        beside = [
            near for score in at for near in (math.nextafter(score, 0.0), score, math.nextafter(score, 1.0))
        ]
        scores = [*EVERYWHERE, *beside, *rng.random(20).tolist()]
        case = {"map": each.model_dump(), "scores": scores, "answers": each.predict_many(scores).tolist()}
        lines.append(json.dumps(case))
    print("[", ",\n".join(lines), "]", sep="\n")


if __name__ == "__main__":
    main()
