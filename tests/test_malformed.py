"""Files and bodies that a fuzzer made from right ones: figures are right, or something says what is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from streamcal import backtest
from tests.command_line import streamcal
from tests.nightly import one_in
from tests.serve.servers import LINES, Served

pytestmark = pytest.mark.slow

N, START, DAY = 160, 1_767_225_600, 86_400  # from 2026-01-01 on
Rows = list[Any]
NAMES = ("predictions", "labels")
FORMATS = ("csv", "jsonl", "parquet", "http")
OF_ROWS = (*FORMATS, "frames")
OF_LINES, OF_JSON = ("csv", "jsonl", "http"), ("jsonl", "http")


def right(name: str) -> Rows:
    """Return the right rows of predictions, or of labels: these come 8 hours later."""
    rng, found = random.Random(1), Rows()
    for number in range(N):
        score = round(rng.random() ** 2, 3)
        label, time = int(rng.random() < score), START + 10_000 * number
        one, other = {"score": score, "time": time}, {"label": label, "time": time + 28_800}
        found.append({"id": f"tx{1000 + number}"} | (one if name == "predictions" else other))
    return found


def dated(pattern: str) -> Callable[[float], str]:
    return lambda time: datetime.fromtimestamp(time, UTC).strftime(pattern)


VALUES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "time": {
        "in ms": lambda t: t * 1000,
        "in µs": lambda t: t * 10**6,
        "in minutes": lambda t: t // 60 + 1,
        "in hours": lambda t: t // 3600 + 1,
        "in days": lambda t: t // DAY,
        "in days of Excel": lambda t: t / DAY + 25569,
        "yyyymmdd": lambda t: int(dated("%Y%m%d")(t)),
        "yyyymmddhhmmss": lambda t: int(dated("%Y%m%d%H%M%S")(t)),
        "as text of digits": str,
        "ISO 8601": dated("%Y-%m-%dT%H:%M:%SZ"),
        "with a space": dated("%Y-%m-%d %H:%M:%S"),
        "dotted": dated("%d.%m.%Y %H:%M:%S"),
        "without a year": dated("%d %b %H:%M"),
        "since 1904": lambda t: t + 2_082_844_800,
        "of another zone": lambda t: datetime.fromtimestamp(t, timezone(timedelta(hours=5.5))).isoformat(),
        "null": lambda t: None,
    },
    "score": {
        "in percent": lambda s: round(100 * s, 1),
        "with %": lambda s: f"{100 * s:.1f}%",
        "log odds": lambda s: math.log((s + 1e-4) / (1.0001 - s)),
        "log probability": lambda s: math.log(s + 1e-6),
        "as text": str,
        "with a comma": lambda s: str(s).replace(".", ","),
        "null": lambda s: None,
        "NaN": lambda s: math.nan,
        "a list": lambda s: [1 - s, s],
        "bool": lambda s: s > 0.5,
    },
    "label": {
        "as text": str,
        "bool": bool,
        "yes or no": lambda y: ("no", "yes")[y],
        "float": float,
        "−1 or 1": lambda y: 2 * y - 1,
        "1 or 2": lambda y: 1 + y,
        "null": lambda y: None,
        "soft": lambda y: 0.2 + 0.5 * y,
        "1 or null": lambda y: y or None,
        "in percent": lambda y: 100 * y,
    },
    "id": {
        "float": lambda i: float(i[2:]),
        "whole number": lambda i: int(i[2:]),
        "with spaces": lambda i: f" {i} ",
        "of three digits": lambda i: f"{int(i[2:]):.2E}",
        "null": lambda i: None,
        "empty": lambda i: "",
        "all one": lambda i: "tx1000",
        "cut": lambda i: i[:5],
        "decomposed": lambda i: "u\u0308" + i,
        "with a line break": lambda i: i + "\n",
    },
}
"""Changes of the values of a field, in all rows or in some; of time in one file or in both."""

SWAPS = ("score", "time"), ("id", "time"), ("id", "score"), ("label", "time"), ("id", "label")
OTHER_NAMES = {"id": "request_id", "score": "probability", "label": "outcome", "time": "timestamp"}


def renamed(row: Any, names: Mapping[str, str | None]) -> Any:
    found = {names.get(name, name): value for name, value in row.items()}
    return {name: value for name, value in found.items() if name is not None}


def every(change: Callable[[Any], Any]) -> Callable[[Rows], Rows]:
    return lambda rows: [change(row) for row in rows]


TABLES: dict[str, Callable[[Rows], Rows]] = {
    **{f"{a} and {b} swapped": every(lambda row, a=a, b=b: renamed(row, {a: b, b: a})) for a, b in SWAPS},
    **{f"{a} named {b}": every(lambda row, a=a, b=b: renamed(row, {a: b})) for a, b in OTHER_NAMES.items()},
    **{f"no {name}": every(lambda row, name=name: renamed(row, {name: None})) for name in OTHER_NAMES},
    "names in capitals": every(lambda row: {name.upper(): value for name, value in row.items()}),
    "rows of labels": lambda rows: right("labels"),
    "rows of predictions": lambda rows: right("predictions"),
    "rows twice": lambda rows: rows + rows,
    "backwards": lambda rows: rows[::-1],
    "shuffled": lambda rows: random.Random(2).sample(rows, N),
    "an event ahead": lambda rows: [*rows[:50], rows[50] | {"time": START + 99 * DAY}, *rows[51:]],
    "no rows": lambda rows: [],
    "a sum at the end": lambda rows: [*rows, dict.fromkeys(rows[0], "Total")],
    "nested": every(lambda row: {"data": row}),
    "arrays": every(lambda row: [*row.values()]),
    "scores decided": every(lambda row: row | ({"score": round(row["score"])} if "score" in row else {})),
    "as it is": lambda rows: rows,
}


def text(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda data: change(data.decode()).encode()


def code(name: str) -> Callable[[bytes], bytes]:
    return lambda data: data.decode().replace("tx", "tü" if name == "latin-1" else "tx").encode(name)


def cells(change: Callable[[int, list[str]], list[str]] = lambda _, row: row, **style: Any) -> Any:
    """Change the cells of CSV, and write them in a style."""

    def changed(data: str) -> str:
        out = io.StringIO()
        table = csv.reader(io.StringIO(data))
        csv.writer(out, **{"lineterminator": "\n", **style}).writerows(
            change(index, row) for index, row in enumerate(table)
        )
        return out.getvalue()

    return text(changed)


def as_json(data: bytes, **style: Any) -> bytes:
    return json.dumps([json.loads(line) for line in data.splitlines()], **style).encode()


def damaged(data: bytes) -> bytes:
    rng, made = random.Random(3), bytearray(data)
    for _ in range(20 if made else 0):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


CODES = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp500")
BYTES: dict[str, tuple[tuple[str, ...], Callable[[bytes], bytes]]] = {
    **{f"separated by {by!r}": (("csv",), cells(delimiter=by)) for by in ";\t|"},
    "decimal commas": (
        ("csv",),
        cells(lambda _, row: [cell.replace(".", ",") for cell in row], delimiter=";"),
    ),
    "commas for points": (("csv",), text(lambda data: data.replace("0.", "0,"))),
    "sep=": (("csv",), text(lambda data: "sep=,\n" + data)),
    "all quoted": (("csv",), cells(quoting=csv.QUOTE_ALL)),
    "an open quote": (("csv",), text(lambda data: data.replace("tx1050", '"tx1050'))),
    "an index": (("csv",), cells(lambda index, row: [str(index - 1) if index else "", *row])),
    "no header": (("csv",), text(lambda data: data.partition("\n")[2])),
    "the header again": (("csv",), text(lambda data: data + data.partition("\n")[0] + "\n")),
    "a title": (("csv",), text(lambda data: "Export of 2026\n" + data)),
    "columns turned": (("csv",), cells(lambda _, row: row[::-1])),
    "a column twice": (("csv",), cells(lambda _, row: [*row, row[1]])),
    "spaces": (("csv",), text(lambda data: data.replace(",", ", "))),
    "short rows": (("csv",), cells(lambda index, row: row if index % 3 != 1 else row[:2])),
    "long rows": (("csv",), cells(lambda index, row: row if index % 3 != 1 else [*row, "x"])),
    "CRLF": (OF_LINES, text(lambda data: data.replace("\n", "\r\n"))),
    "empty lines": (OF_LINES, text(lambda data: data.replace("\n", "\n\n"))),
    "no end": (OF_LINES, text(str.rstrip)),
    "torn": (OF_LINES, text(lambda data: data[:-15])),
    **{name: (OF_LINES, code(name)) for name in CODES},
    "zero bytes": (OF_LINES, lambda data: data + bytes(500)),
    "gzip": (FORMATS, gzip.compress),
    "empty": (FORMATS, lambda data: b""),
    "half": (FORMATS, lambda data: data[: len(data) // 2 - 3]),
    "damaged": (FORMATS, damaged),
    "HTML": (FORMATS, lambda data: b"<!DOCTYPE html><html><body>Sign in</body></html>\n"),
    "CSV": (FORMATS, lambda data: encoded(right("predictions"), "csv")),
    "JSON lines": (FORMATS, lambda data: encoded(right("predictions"), "jsonl")),
    "Parquet": (FORMATS, lambda data: encoded(right("predictions"), "parquet")),
    "an array": (OF_JSON, as_json),
    "objects, indented": (OF_JSON, lambda data: data.replace(b",", b",\n").replace(b"{", b"{\n")),
    "single quotes": (OF_JSON, lambda data: data.replace(b'"', b"'")),
    "commas between": (OF_JSON, lambda data: data.replace(b"\n", b",\n")),
    "a name twice": (OF_JSON, lambda data: data.replace(b"{", b'{"id": "a", ')),
}
"""Changes of the bytes of a file, and the formats in which they are tried."""

CASES = [
    (f"{field} {name}", form) for field, changes in VALUES.items() for name in changes for form in OF_ROWS
]
CASES += [(name, form) for name in TABLES for form in OF_ROWS]
CASES += [(name, form) for name, (formats, _) in BYTES.items() for form in formats]
CASES.remove(("label null", "frames"))  # such a row is left out, as documented


def encoded(rows: Rows, form: str) -> bytes:
    """Return rows as a file of a format."""
    if form == "parquet":
        names = {name: None for row in rows for name in row} if rows else {"id": None}
        made = {name: [row.get(name) for row in rows] for name in names}
        out = io.BytesIO()
        parquet.write_table(pa.table(made), out)
        return out.getvalue()
    if form == "csv":
        lines = [dict(enumerate(row)) if isinstance(row, list) else row for row in rows]
        text = io.StringIO()
        writer = csv.DictWriter(
            text, [*dict.fromkeys(name for row in lines for name in row)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue().encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def files(name: str, form: str) -> dict[str, Any]:
    """Return the files of a case: its name decides which of them is changed, and in which rows."""
    rng, rows = random.Random(f"0 {name}"), {file: right(file) for file in NAMES}
    field, _, change = name.partition(" ")
    if made := VALUES.get(field, {}).get(change):
        share = rng.choice([1.0, 1.0, 0.3])
        for file in rng.choice(
            [[*NAMES], ["predictions"], ["labels"]] if field in ("time", "id") else [[*NAMES]]
        ):
            for row in rows[file]:
                if field in row and rng.random() < share:
                    row[field] = made(row[field])
    changed = "labels" if "label" in name else "predictions" if "score" in name else rng.choice(NAMES)
    if name in TABLES:
        rows[changed] = TABLES[name](rows[changed])
    if form == "frames":
        return {file: pd.DataFrame(rows[file]) for file in NAMES}
    found = {file: encoded(rows[file], form) for file in NAMES}
    if name in BYTES:
        found[changed] = BYTES[name][1](found[changed])
    return found


class Outcome(NamedTuple):
    """Figures of a run or server, the number of events that were refused, and what was said."""

    figures: Any
    refused: int
    said: list[str]


def of_run(found: Mapping[str, bytes], form: str, folder: Path) -> Outcome:
    """Run over files."""
    paths = {file: folder / f"{file}.{form}" for file in NAMES}
    for file, data in found.items():
        paths[file].write_bytes(data)
    rejects, summary = folder / "rejects.jsonl", folder / "summary.json"
    done = streamcal(
        "run", "--mode", "target", "--events", paths["predictions"], "--labels", paths["labels"],
        "--output", folder / "out.jsonl", "--rejects", rejects, "--summary", summary,
    )  # fmt: skip
    reasons = rejects.read_text().splitlines() if rejects.exists() else []
    said = sorted({json.loads(row)["reason"] for row in reasons})[:2]
    if done.returncode:
        return Outcome(None, N, [line for line in done.stderr.splitlines() if "0.1.0" not in line] + said)
    made = json.loads(summary.read_text())
    figures = made["join"]["joined"], made["brier_before"], made["brier_after"]
    said += [] if figures[0] else [made["verdict"]]
    return Outcome(figures, made["rejected"], [*made["remarks"], *said])


def of_frames(found: Mapping[str, pd.DataFrame]) -> Outcome:
    """Backtest over frames."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = backtest(*found.values(), mode="target").summary
        except ValueError as error:
            return Outcome(None, N, [str(error)])
    figures = made["join"]["joined"], made["brier_before"], made["brier_after"]
    return Outcome(figures, made["rejected"], [str(each.message) for each in caught])


def of_server(found: Mapping[str, bytes], folder: Path) -> Outcome:
    """Post bodies to a server."""
    server, refused, said = Served(folder / "store.db", "--mode", "target"), 0, dict[str, None]()
    for file, data in found.items():
        status, answers = server.ask("POST", f"/v1/{file}", data, LINES)
        for answer in answers if status == 200 else [answers]:
            refused += answer.get("status", 200) >= 400
            if words := answer.get("detail") or (answer.get("outcome") == "waiting" and "waiting"):
                said[words] = None
    server.stop()
    made = json.loads(streamcal("show", folder / "store.db", "--json").stdout)
    said |= dict.fromkeys(remark["words"] for remark in made["remarks"])
    figures = made["join"]["joined"], made["before"]["brier"], made["after"]["brier"]
    return Outcome(figures, refused, [*said][:4])


def outcome(name: str, form: str, folder: Path) -> Outcome | None:
    """Return what becomes of a case; None if Arrow cannot have it."""
    try:
        found = files(name, form)
    except (pa.ArrowException, AttributeError, TypeError):
        if form != "parquet":
            raise
        return None
    if form == "frames":
        return of_frames(found)
    return of_server(found, folder) if form == "http" else of_run(found, form, folder)


@cache
def usual(form: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return outcome("as it is", form, Path(folder))


def verdict(found: Outcome, form: str) -> str:
    if found.figures == pytest.approx(usual(form).figures) and not found.refused:
        return "right"
    if not {*found.said} - {*usual(form).said}:
        return "SILENT"
    return "refused" if found.refused else "remarked"


@pytest.mark.parametrize(("name", "form"), one_in(16, CASES))
def test_nothing_wrong_is_believed_in_silence(tmp_path: Path, name: str, form: str) -> None:
    found = outcome(name, form, tmp_path)
    assert found is None or verdict(found, form) != "SILENT", found
