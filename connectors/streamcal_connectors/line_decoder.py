"""Events from lines: JSON, or CSV in the form that its header and first rows tell."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import Final

import msgspec

from streamcal.base.errors import ColumnsError
from streamcal.events import Event
from streamcal.events.codec import CsvDecoder, JsonDecoder, TextFormat
from streamcal.events.fields import Malformed
from streamcal.run.ports import SourceOptions
from streamcal_connectors.readers import DamagedError

MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is rejected."""

BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""

_SEP: Final = re.compile(rb'"?sep=(.)"?', re.IGNORECASE)

log = logging.getLogger("streamcal_connectors")


class LineDecoder:
    """Decodes the lines of a source, in their order.

    Parameters
    ----------
    title
        Name of the source in messages.
    options
        Options of reading.
    csv
        Form of CSV with a header; None: JSON.

    Attributes
    ----------
    broken
        Why nothing more can be decoded: a row that has no end.
    """

    def __init__(self, title: str, options: SourceOptions, csv: TextFormat | None) -> None:
        self._title = title
        self._options = options
        self._csv = csv
        self._noted: set[str] = set()
        self._decoder: JsonDecoder | CsvDecoder | None = None  # of CSV, none before its header
        if csv is None:
            self._decoder = JsonDecoder(options.domain, options.columns)
        self.begin()

    def begin(self) -> None:
        """Get ready for a line of any place; of CSV, for a header."""
        self.broken: DamagedError | None = None
        self._mark: str | None = None  # of a line sep=; before the header
        if self._csv is not None:
            self._decoder = None
        self.needs_order = False
        """Whether the order of dates is still to be found."""

    @property
    def needs_header(self) -> bool:
        """Whether the next line that is not blank is a header."""
        return self._decoder is None

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of fields that were ignored so far because events have no such field, by name."""
        return {} if self._decoder is None else self._decoder.unknown_fields

    def find_header(self, lines: Iterable[bytes]) -> None:
        """Take the header among the first lines of a file; ColumnsError if it lacks a column."""
        for line, raw in enumerate(lines, 1):
            text = (raw.removeprefix(BOM) if line == 1 else raw).removesuffix(b"\r")
            if text.strip():
                self._take_header(text, line)
            if self._decoder is not None:
                return

    def find_order(self, lines: Iterable[bytes], *, again: bool) -> None:
        """Find the order of dates in the first lines; look ``again`` later if they have none.

        Raises
        ------
        ColumnsError
            If they have two meanings.
        """
        if isinstance(self._decoder, CsvDecoder):
            try:
                self.needs_order = not self._decoder.find_order(lines) and again
            except ValueError as error:
                raise ColumnsError(f"{self._title}, first row: {error}") from None

    def decode(
        self, data: bytes, line: int, *, begins: bool, last: bool
    ) -> tuple[Sequence[Event | Malformed], Sequence[int] | None, int]:
        """Return the events of whole lines, the last line of each from 0, and how many bytes that are.

        Parameters
        ----------
        data
            The lines, which begin behind so many others, or the file ``begins`` with them.
        last
            Whether there are no more, so that a row in quotes does not go on.

        Returns
        -------
        No lines if each has one event; fewer bytes if a row goes on behind them.
        """
        whole = None if self._decoder is None else self._decoder.decode_lines(data, rejects=True)
        if whole is not None:
            return whole, None, len(data)
        events: list[Event | Malformed] = []
        lines: list[int] = []
        texts = data.split(b"\n")
        count = len(texts) - data.endswith(b"\n")
        end = 0  # of the row before
        for index, text in enumerate(texts):
            if index < end:
                continue
            end = index + 1
            raw = text.removesuffix(b"\r")
            if begins and not index:
                raw = raw.removeprefix(BOM)
            if not raw or raw.isspace():
                continue
            if len(raw) > MAX_LINE_BYTES:
                event: Event | Malformed = too_long(len(raw))
            elif self._decoder is None:
                self._take_header(raw, line + end)
                continue
            else:
                event = self._decoder.decode(raw)
            if type(event) is Malformed and isinstance(self._decoder, CsvDecoder) and b'"' in raw:
                end = index + self._decoder.lines_of(islice(texts, index, count))
                if index + 1 < end <= count:
                    event = self._decoder.decode(b"\n".join(texts[index:end]).removesuffix(b"\r"))
                    if isinstance(event, Malformed) and event.code == "not_csv":
                        self.break_row(line + index + 1, f" up to line {line + end}")
                elif end > count and last:
                    self.break_row(line + index + 1)
                if end > count or self.broken is not None:
                    return events, lines, sum(map(len, texts[:index])) + index
            events.append(event)
            lines.append(end - 1)
        return events, lines, len(data)

    def break_row(self, line: int, where: str = "") -> None:
        """Refuse a row that begins in a line and has no end."""
        self.broken = DamagedError(
            f"in line {line}, a text in quotes goes on over line breaks{where}, but that is no row: close it,"
            " or write a quotation mark within it twice"
        )

    def note(self, *, is_wide: bool) -> None:
        """Say once what was found out about the form of the file."""
        notes = dict[str, str]()
        if is_wide:
            notes["encoding"] = "it is UTF-16"
        if isinstance(self._decoder, CsvDecoder):
            notes |= self._decoder.notes
        for name, note in notes.items():
            if name not in self._noted:
                self._noted.add(name)
                log.info("%s: %s", self._title, note)

    def _take_header(self, header: bytes, line: int) -> None:
        """Take the header, or the line ``sep=;`` before it, as Excel writes it: it overrides the option."""
        options, form, decoder = self._options, self._csv or TextFormat(), CsvDecoder
        with suppress(ImportError):  # without pyarrow, rows are decoded one by one
            decoder = import_module("streamcal_connectors.csv_columns").CsvColumns
        try:
            if mark := _SEP.fullmatch(header):
                self._mark = mark[1].decode()
                return
            if self._mark is not None:
                form = msgspec.convert({**msgspec.to_builtins(form), "separator": self._mark}, TextFormat)
            self._decoder = decoder(header, options.domain, options.columns, options.required, form)
            self.needs_order = True
        except ValueError as error:
            raise ColumnsError(f"{self._title}, line {line}: {error}") from None


def too_long(size: int) -> Malformed:
    """Return what stands for a line of so many bytes."""
    return Malformed("too_long", {"most": MAX_LINE_BYTES, "size": size})
