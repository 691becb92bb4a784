"""The flights stream of examples/flights, as the scripts of this folder need it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.events import LabelEvent, PredictionEvent

__all__ = ["HOUR", "events", "joined", "rows", "source"]

HOUR: Final = 3600.0
FLIGHTS: Final = Path(__file__).parents[2] / "examples" / "flights"

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def rows(name: str, airport: str = "") -> list[dict[str, Any]]:
    """Return the events of a file, "source", "predictions" or "labels", from an airport, or from all."""
    with gzip.open(FLIGHTS / f"{name}.jsonl.gz") as lines:
        events = msgspec.json.Decoder(dict[str, Any]).decode_lines(lines.read())
    return [event for event in events if event["id"].endswith(airport)]


def source() -> tuple[Scores, Labels]:
    """Return the scores and labels of March and April, in order of arrival: float64[n], int8[n]."""
    known = rows("source")
    return np.array([row["score"] for row in known]), np.array([row["label"] for row in known], np.int8)


def events() -> list[PredictionEvent | LabelEvent]:
    """Return May to December in order of event time; at equal times, predictions come first."""
    predictions = [PredictionEvent(row["id"], row["score"], row["time"]) for row in rows("predictions")]
    labels = [LabelEvent(row["id"], row["label"], row["time"]) for row in rows("labels")]
    return sorted([*predictions, *labels], key=lambda event: event.time or 0.0)


def joined(airport: str = "") -> tuple[Scores, Labels, Scores, Scores]:
    """Return the labelled flights of May to December, from an airport or all, as their labels came.

    Returns
    -------
    scores float64[n], labels int8[n], and the times of prediction and of label, float64[n], in seconds.
    """
    predicted = {row["id"]: (row["score"], row["time"]) for row in rows("predictions", airport)}
    known = rows("labels", airport)
    scores, times = np.array([predicted[row["id"]] for row in known], np.float64).T
    labels = np.array([row["label"] for row in known], np.int8)
    return scores, labels, times, np.array([row["time"] for row in known], np.float64)
