"""The shipped example: a year of late flights from JFK (examples/flights), run like a user's own stream."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tempfile
from contextlib import chdir
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from streamcal.cli.run import run

_Row = dict[str, str | float]

FILES: Final = ("source.jsonl.gz", "predictions.jsonl.gz", "labels.jsonl.gz")
"""Labelled flights of March and April; predictions and labels of May to December."""


def read_events() -> tuple[list[_Row], list[_Row], list[_Row]]:
    """Return the events of the example, those of each of `FILES`, in order of time and id."""
    packed = (files("streamcal.cli") / "flights.npz.xz").read_bytes()
    columns = np.load(io.BytesIO(lzma.decompress(packed)))  # made by examples/flights/prepare.py
    minutes = columns["time"].cumsum()
    source, predictions, labels = list[_Row](), list[_Row](), list[_Row]()
    for id_, score, time_, known, label in zip(
        columns["id"].astype(str).tolist(),
        (columns["score"] / 1e6).tolist(),
        (60 * minutes).tolist(),
        (60 * (minutes + columns["delay"])).tolist(),
        columns["label"].tolist(),
        strict=True,
    ):
        if id_ < "05":  # of March and April
            source.append({"id": id_, "score": score, "label": label, "time": time_})
            continue
        predictions.append({"id": id_, "score": score, "time": time_})
        if label < 2:
            labels.append({"id": id_, "label": label, "time": known})
    return source, predictions, sorted(labels, key=itemgetter("time", "id"))


def write_files(folder: Path) -> None:
    """Write the events of the example to a folder, made if there is none, as gzip files of JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(FILES, read_events(), strict=True):
        (folder / name).write_bytes(gzip.compress(msgspec.json.Encoder().encode_lines(rows), 6, mtime=0))


def run_example(report: Path) -> None:
    """Calibrate on March and April, recalibrate May to December; print a table, and write a report."""
    report = report.absolute()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        write_files(Path())
        source, predictions, labels = FILES
        run(calibration=source, events=[predictions], labels=[labels], output=os.devnull, report=report)
