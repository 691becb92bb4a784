"""CSV and JSON as other programs write them: the events of the plain file, or a refusal of one place."""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from streamcal_connectors.files import FileConnector

from streamcal.events import Event
from streamcal.events.codec import Malformed
from streamcal.events.columns import Columns
from streamcal.run.ports import SourceOptions
from tests.command_line import streamcal

BEGIN = 1767225600  # 1 January 2026
ROWS = [(f"é{i}", i / 4096, i % 2, BEGIN + 3600 * i) for i in range(3000)]
NAMES = ("id", "score", "label", "time")


def day(form: str) -> Callable[[int], str]:
    return lambda time: f"{datetime.fromtimestamp(time, UTC):{form}}"


def csv(
    separator: str = ",",
    decimal: str = ".",
    time: Callable[[int], object] = int,
    before: str = "",
    end: str = "\n",
) -> str:
    rows = [separator.join(NAMES)] + [
        separator.join((id_, f"{score!r}".replace(".", decimal), str(label), str(time(moment))))
        for id_, score, label, moment in ROWS
    ]
    return before + end.join([*rows, ""])


OBJECTS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
ARRAY = json.dumps(OBJECTS, indent=2, ensure_ascii=False)
GERMAN = csv(";", ",", day("%d.%m.%Y %H:%M"), end="\r\n")
INDEXED = "\n".join(
    ["," + ",".join(NAMES)] + [f"{i}," + ",".join(map(str, row)) for i, row in enumerate(ROWS)] + [""]
)
BROKEN = "id,note,score,label,time\n" + "".join(
    f'"{id_}","two\nlines, ""{id_}"", \nor three",{score},{label},{time}\n\n'
    for id_, score, label, time in ROWS
)


class Case(NamedTuple):
    """A file, the options that it needs, and parts of the notes that are logged."""

    name: str
    text: str | bytes
    options: Mapping[str, Any] = MappingProxyType({})
    notes: tuple[str, ...] = ()


DATED = "'01.01.2026 00:00' in column 'time' is read as 2026-01-01T00:00"
FIRST = "'01/01/2026 00:00' as 2026-01-01T00:00"
SLASHED = "'2026/01/01 00:00:00' in column 'time' is read as 2026-01-01T00:00:00"
COMMAS, SEMICOLONS = "'0,0' in column 'score' is read as 0.0", "separated by ';'"
CASES = {
    "plain": Case("e.csv", csv()),
    "mark": Case("e.csv", b"\xef\xbb\xbf" + csv().encode()),
    "semicolons": Case("e.csv", csv(";"), notes=(SEMICOLONS,)),
    "tabs": Case("e.tsv", csv("\t"), notes=(r"separated by '\t'",)),
    "named": Case("e.csv", csv("|"), {"separator": "|"}),
    "sep": Case("e.csv", csv(";", before="sep=;\r\n", end="\r\n")),
    "decimals": Case("e.csv", csv(";", ","), notes=(SEMICOLONS, COMMAS)),
    "german": Case("e.csv", GERMAN, notes=(SEMICOLONS, COMMAS, DATED)),
    "german, UTF-16": Case("e.csv", GERMAN.encode("utf-16"), notes=("UTF-16", SEMICOLONS, COMMAS, DATED)),
    "Windows": Case("e.csv", GERMAN.encode("cp1252"), {"encoding": "cp1252"}, (SEMICOLONS, COMMAS, DATED)),
    "array, Windows": Case("e.json", ARRAY.encode("cp1252"), {"encoding": "cp1252"}, ("an array",)),
    "big end first": Case("e.csv", b"\xfe\xff" + csv().encode("utf-16-be"), notes=("UTF-16",)),
    "slashes": Case(
        "e.csv", csv(time=day("%d/%m/%Y %H:%M")), notes=(f"order dmy: {FIRST}, '13/01/2026 00:00' as",)
    ),
    "American": Case("e.csv", csv(time=day("%m-%d-%Y %H:%M")), notes=("order mdy: '01-01-2026 00:00' as",)),
    "named order": Case("e.csv", csv(time=day("%d/%m/%Y %H:%M")), {"date_format": "dmy"}),
    "year first": Case("e.csv", csv(time=day("%Y/%m/%d %H:%M:%S")), notes=(SLASHED,)),
    "index": Case("e.csv", INDEXED),
    "breaks": Case("e.csv", BROKEN),
    "lines": Case("e.json", "\n".join(map(json.dumps, OBJECTS)) + "\n"),
    "array": Case("e.json", json.dumps(OBJECTS), notes=("an array",)),
    "indented": Case("e.json", f"\n {ARRAY}\r\n", notes=("an array",)),
    "array, UTF-16": Case("e.json", json.dumps(OBJECTS).encode("utf-16"), notes=("UTF-16", "an array")),
}


def written(folder: Path, case: Case, *, packed: bool = False) -> Path:
    path = folder / (case.name + ".gz" * packed)
    text = case.text.encode() if isinstance(case.text, str) else case.text
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


def read(
    path: Path,
    form: Mapping[str, Any],
    position: Any = None,
    *,
    many: int = 500,
    only: int | None = None,
    **options: Any,
) -> tuple[list[Event | Malformed], list[Any]]:
    """Return the events from a position on, and the position behind each."""
    connector = FileConnector()
    connector.set_up(form, lambda: False)
    events: list[Event | Malformed] = []
    positions = []
    with closing(connector.source(str(path), SourceOptions(**options))) as source:
        source.seek({} if position is None else {"": position})
        while not source.ended and (only is None or len(events) < only):
            for batch in source.poll(many, 0.0):
                events += batch.events
                positions += [
                    json.loads(json.dumps(batch.position(i + 1))) for i in (0, len(batch.events) - 1)
                ]
    return events, positions


def shown(events: list[Any]) -> list[tuple[Any, ...]]:
    return [(e.id, e.score, e.label, _seconds(e.time)) for e in events]


def _seconds(time: Any) -> float:
    return float(time)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_events_are_those_of_the_plain_file_from_any_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, packed: bool
) -> None:
    case = CASES[name]
    path = written(tmp_path, case, packed=packed)
    with caplog.at_level(logging.INFO, "streamcal_connectors"):
        events, positions = read(path, case.options)
    assert shown(events) == ROWS
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(case.notes)
    for note, text in zip(case.notes, said, strict=True):
        assert note in text
    for number in range(0, len(positions), 7):
        rest, _ = read(path, case.options, positions[number])
        assert shown(rest) == ROWS[len(ROWS) - len(rest) :]
        assert number == len(positions) - 1 or rest


DAYS = "id,score,time\na,0.5,\nb,0.5,1/2/2026 9:00\nc,0.5,3/2/2026 9:00\n"


@pytest.mark.parametrize(
    ("name", "text", "form", "message"),
    [
        ("e.csv", "id;score\na;0.5\n", {"separator": ","}, "line 1: .* must name score or label"),
        ("e.csv", "sep=:\nid:score\n", {}, "line 2: Invalid enum value ':'"),
        ("e.csv", 'id,score,"no\nte"\n', {}, "line 1: not a CSV header"),
        (
            "e.csv",
            DAYS,
            {},
            r"first row: .* got '1/2/2026 9:00' .date_format = 'dmy' or 'mdy' of .file. or .stdio. tells",
        ),
    ],
)
def test_a_header_or_date_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, text: str, form: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(written(tmp_path, Case(name, text)), form)


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        (
            'id,score\na,0.5\nb,"0.5\nc,0.5\n',
            "beyond line 2: in line 3, a text in quotes goes on over line breaks, but",
        ),
        (
            'id,score\na,0.5\nb,"0.5\nb,0.5\nc,"0.5\nd,0.5\n',
            "line 3, a text in quotes goes on over line breaks up to line 5",
        ),
        (
            "id,score\na,0.5\na" + (',"' + "x\n" * 60_000 + '"') * 10,
            "line 3, .* for more than 1,048,576 bytes",
        ),
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("final", [False, True])
def test_a_row_that_has_no_end_ends_the_reading_before_it(
    tmp_path: Path, text: str, damage: str, final: bool
) -> None:
    path = written(tmp_path, Case("e.csv", text))
    with closing(FileConnector().source(str(path), SourceOptions(final=final))) as source:
        source.seek({})
        events: list[Any] = []
        while not source.ended:
            events += [event for batch in source.poll(10, 0.0) for event in batch.events]
        assert [event.id for event in events] == ["a"]
        assert re.search(damage, str(source.damage))  # type: ignore[attr-defined]
    path.write_bytes(b"id,score\na,0.5\nb,0.75\n")
    assert [event.id for event in read(path, {})[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            "a;0,5;1;01-02-2026",
            "got '01-02-2026' (date_format = 'dmy' or 'mdy' of [file] or [stdio] tells), in column 'time'",
        ),
        ("a;0,5;1;31/01/2026 9:00", "got '31/01/2026 9:00' (date_format = 'dmy' of [file]"),
        ("a;0,5;1;01.31.2026", "an ISO 8601 date and time, got '01.31.2026'"),
        ("a;0,5;1;01.01.26", "an ISO 8601 date and time, got '01.01.26'"),
        ("a;1,000,5;1;1", "a score must be a number in [0, 1], got '1,000,5'"),
        ("a;1,000;1;1,5", None),
        ("a;0,5;2,5;1", "a label must equal 0 or 1, got 2.5"),
    ],
)
def test_what_may_mean_two_things_is_rejected_with_what_to_write(
    tmp_path: Path, row: str, reason: str | None
) -> None:
    path = written(tmp_path, Case("e.csv", f"id;score;label;time\nb;0,5;1;1\n{row}\n"))
    (_, event), _ = read(path, {})
    assert (event.reason if isinstance(event, Malformed) else None) == reason or str(reason) in event.reason  # type: ignore[union-attr]


def test_a_comma_in_a_weight_needs_an_option(tmp_path: Path) -> None:
    path = written(tmp_path, Case("e.csv", "id;score;w\na;0,5;1,234\nb;0,5;1,25\n"))
    columns = Columns(weight="w")
    (first, second), _ = read(path, {}, columns=columns)
    assert "got '1,234' (decimal = ',' of [file] or [stdio]: 1.234)" in first.reason  # type: ignore[union-attr]
    assert second.weight == 1.25  # type: ignore[union-attr]
    assert [event.weight for event in read(path, {"decimal": ","}, columns=columns)[0]] == [1.234, 1.25]  # type: ignore[union-attr]
    assert "got '0,5'" in read(path, {"decimal": "."}, columns=columns)[0][0].reason  # type: ignore[union-attr]


def test_text_of_another_encoding_is_rejected_with_the_option(tmp_path: Path) -> None:
    ((event,), _) = read(written(tmp_path, Case("e.csv", "id,score\né,0.5\n".encode("cp1252"))), {})
    assert "at byte 0; perhaps encoding = 'cp1252' of [file] or [stdio]" in event.reason  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_index_of_pandas_is_no_unknown_field(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, Case("e.csv", f"{name},id,score,more\n0,a,0.5,1\n"))
    with closing(FileConnector().source(str(path), SourceOptions())) as source:
        source.seek({})
        (batch,) = source.poll(10, 0.0)
        assert [event.id for event in batch.events] == ["a"]
        assert source.unknown_fields == {"more": 1}


@pytest.mark.slow
def test_a_run_stopped_within_any_of_them_goes_on_in_the_same_form(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[file]\ndate_format = "dmy"\n', "utf-8")
    answers = {}
    for name in ("plain", "german, UTF-16", "named order", "breaks", "array"):
        folder = tmp_path / name
        folder.mkdir()
        path, whole = written(folder, CASES[name]), written(tmp_path, CASES[name]).read_bytes()
        command = (
            "run",
            "--config",
            config,
            "--events",
            path,
            "--store",
            folder / "s",
            "--output",
            folder / "o.jsonl",
        )
        for size in (len(whole) // 3, len(whole)):
            path.write_bytes(whole[:size])
            done = streamcal(*command)
            assert done.returncode == ("goes on over line breaks" in done.stderr)
        answers[name] = (folder / "o.jsonl").read_text("utf-8").splitlines()
        assert len(answers[name]) == len(ROWS)
    scores = {name: [json.loads(row)["score"] for row in rows] for name, rows in answers.items()}
    assert all(found == scores["plain"] for found in scores.values())
    done = streamcal(
        "run", "--events", tmp_path / "array" / "e.json", "--follow", "--output", tmp_path / "x.jsonl"
    )
    assert done.returncode == 1
    assert "an array in JSON does not grow: leave out --follow" in done.stderr


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ValueError, match="unknown field `seperator`; they are encoding, separator, decimal, date_format"
    ):
        FileConnector().set_up({"seperator": ";"}, lambda: False)


@pytest.mark.parametrize(
    ("end", "unfinished", "damage"),
    [
        ('{"id": "b", "sco', "it ends within the array", None),
        ("", "it ends within the array", None),
        (
            '{"id": "b", "score": 0.5} {"id": "c"}]',
            None,
            "element 3 of the array is not JSON: Expecting ',' or ']'",
        ),
        ("{id: 1}]", None, "element 2 of the array is not JSON: Expecting property name"),
        ('{"id": "b", "score": 0.5}]\n{}', None, "something follows the end of the array"),
    ],
)
def test_an_array_that_is_none_is_read_up_to_there(
    tmp_path: Path, end: str, unfinished: str | None, damage: str | None
) -> None:
    path = written(tmp_path, Case("e.json", '[{"id": "a", "score": 0.25}, ' + end))
    with closing(FileConnector().source(str(path), SourceOptions())) as source:
        source.seek({})
        events = []
        while not source.ended:
            events += [event for batch in source.poll(10, 0.0) for event in batch.events]
        assert [event.id for event in events] == ["a", "b"][: len(events)]
        assert str(unfinished) in str(source.unfinished)  # type: ignore[attr-defined]
        assert str(damage) in str(source.damage)  # type: ignore[attr-defined]


def test_what_grows_is_followed_and_an_array_is_not(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    half = len(GERMAN.encode("utf-16")) // 4 * 2 + 1  # within a character
    path.write_bytes(GERMAN.encode("utf-16")[:half])
    events: list[Any] = []
    with closing(FileConnector().source(str(path), SourceOptions(follow=True))) as source:
        source.seek({})
        for _ in range(20):
            events += [event for batch in source.poll(1000, 0.0) for event in batch.events]
        assert 1000 < len(events) < len(ROWS)
        with path.open("ab") as file:
            file.write(GERMAN.encode("utf-16")[half:])
        for _ in range(20):
            events += [event for batch in source.poll(1000, 0.0) for event in batch.events]
    assert shown(events) == ROWS
    with closing(
        FileConnector().source(str(written(tmp_path, CASES["array"])), SourceOptions(follow=True))
    ) as source:
        source.seek({})
        with pytest.raises(ValueError, match=r"e\.json: an array in JSON does not grow: leave out --follow"):
            source.poll(10, 0.0)


def test_all_before_a_cut_is_read_though_the_first_rows_were_looked_at(tmp_path: Path) -> None:
    case = CASES["slashes"]
    assert isinstance(case.text, str)
    path = tmp_path / "e.csv.gz"
    path.write_bytes(gzip.compress(case.text.encode(), mtime=0)[:-40])
    events, positions = read(path, case.options, many=1)
    assert 2000 < len(events) < 3000
    path.write_bytes(gzip.compress(case.text.encode(), mtime=0))
    assert shown(events + read(path, case.options, positions[-1])[0]) == ROWS


def test_origins_are_those_of_rows_and_elements(tmp_path: Path) -> None:
    text = 'id,x,score\n\na,"1\n2",0.5\n\n\nb,"3\n4\n",7\nc,,9\n'
    with closing(
        FileConnector().source(str(written(tmp_path, Case("e.csv", text))), SourceOptions())
    ) as source:
        source.seek({})
        (batch,) = source.poll(10, 0.0)
        assert [batch.origin(i).line for i in range(3)] == [3, 7, 10]
        assert batch.origin(1).raw == b'b,"3\n4\n",7'
