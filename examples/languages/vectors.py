"""Print the test vectors for readers of maps in other languages: JSON, a case to a line.

`python vectors.py > maps.json` and, of many classes, `python vectors.py classes > class-maps.json`.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal import MulticlassMap, RecalibrationMap

EVERYWHERE = [
    -9e-7,
    0.0,
    5e-324,
    1e-300,
    2.0**-41,
    2.0**-40,
    1e-9,
    0.1,
    0.3,
    0.5,
    0.7,
    1.0 - 1e-9,
    1.0 - 2.0**-40,
]
EVERYWHERE += [1.0 - 2.0**-41, math.nextafter(1.0, 0.0), 1.0, 1.0 + 9e-7]


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


def class_maps() -> dict[str, MulticlassMap]:
    """Return maps of many classes, by what they show: of each kind of candidate, alone and mixed."""
    rng, made = np.random.default_rng(32), maps()
    shift, steps, linear, far = made[1], made[5], made[14], made[9]
    biases = (-0.5, 0.0, 0.25, 1.0)
    matrix = (*(np.eye(4) + rng.normal(0.0, 0.2, (4, 4))).ravel().tolist(), *biases)
    candidates = [
        ("score", 0.1, "score"),
        ("maps", 0.2, "maps"),
        ("one slope", 0.1, "scaling", 1.3, *biases),
        ("slopes", 0.1, "scaling", 0.8, 1.0, 1.2, 2.0, *biases),
        ("matrix", 0.2, "scaling", *matrix),
        ("matrix of maps", 0.1, "scaling of maps", *matrix),
        ("source", 0.1, "shift"),
        ("shift", 0.1, "shift", 0.0, 0.5, 2.0, 1.0),
    ]
    by_class = {"maps": (steps, None, linear, shift), "source_maps": (far, linear, steps, None)}
    zero = RecalibrationMap(version=1, edges=(0.0, 0.5, 1.0), values=(0.0, 1.0))
    fields: dict[str, dict[str, Any]] = {
        "the score, which keeps its order": {"keeps_order": True},
        "mixture": {"candidates": candidates, "shared": "slopes", **by_class},
        "mixture that keeps order": {"candidates": candidates, "keeps_order": True, **by_class},
        "maps that are all 0": {"candidates": [("maps", 1.0, "maps")], "maps": (zero,) * 4},
        "steep": {"candidates": [("one slope", 1.0, "scaling", 300.0, *biases)]},
        "two": {"candidates": [("maps", 1.0, "maps")], "maps": (None, linear), "classes": ("no", "yes")},
    }
    fields["two that keep order"] = fields["two"] | {"maps": (None, steps), "keeps_order": True}
    found = {}
    for title, own in fields.items():
        parts = [
            {"name": name, "weight": weight, "kind": kind, "parameters": parameters}
            for name, weight, kind, *parameters in own.get("candidates", candidates[:1])
        ]
        if len(parts) == 1:
            parts[0]["weight"] = 1.0
        defaults = {"version": 8, "classes": ("cat", 'it\'s "dog"', "fox", "owl\\ł")}
        found[title] = MulticlassMap.model_validate(defaults | own | {"candidates": parts})
    return found


def class_rows(classes: int, count: int) -> npt.NDArray[np.float64]:
    """Return rows of scores: anywhere, near corners, in them, with equal scores, and off by rounding."""
    rng, corner = np.random.default_rng(33), np.eye(classes)
    tiny, even = rng.dirichlet(np.full(classes, 0.02), count // 4), np.full((1, classes), 1.0 / classes)
    rows = [rng.dirichlet(np.ones(classes), count), tiny, corner, even, 0.5 * (corner + corner[::-1])]
    rows += [np.abs(corner - 5e-324), corner - 4e-7 * np.roll(corner, 1, axis=1)]
    rows += [rng.dirichlet(np.ones(classes), 5) * (1.0 + off) for off in (9e-7, -9e-7)]
    return np.concatenate(rows)


def main() -> None:
    rng, lines = np.random.default_rng(31), []
    for each in [] if sys.argv[1:] else maps():
        at = [*each.edges[1:-1], *(1.0 / (1.0 + math.exp(-knot)) for knot in each.knots)]
        beside = [
            near for score in at for near in (math.nextafter(score, 0.0), score, math.nextafter(score, 1.0))
        ]
        scores = [*EVERYWHERE, *beside, *rng.random(20).tolist()]
        case = {"map": each.model_dump(), "scores": scores, "answers": each.predict_many(scores).tolist()}
        lines.append(json.dumps(case))
    for title, class_map in class_maps().items() if sys.argv[1:] else ():
        rows = class_rows(len(class_map.classes), 20)
        case = {"name": title, "map": class_map.model_dump(), "scores": rows.tolist()}
        lines.append(json.dumps(case | {"answers": class_map.predict_many(rows).tolist()}))
    print("[", ",\n".join(lines), "]", sep="\n")


if __name__ == "__main__":
    main()
