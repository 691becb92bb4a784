"""Files as sources, for the tests: opened at a position, and read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from streamcal_connectors.files import FileConnector

from streamcal.events.codec import Malformed
from streamcal.run.ports import SourceOptions


@contextmanager
def opened(
    what: Path | str, position: Any = None, form: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[Any]:
    """Give a source at a position; its file has options of form, and options of reading."""
    connector = FileConnector()
    connector.set_up(form or {}, lambda: False)
    with closing(connector.source(str(what), SourceOptions(**options))) as source:
        source.seek({} if position is None else {"": position})
        yield source


class Found:
    """What was read: the events, and by index where each is."""

    def __init__(self) -> None:
        self.places: list[tuple[Any, int]] = []  # a batch, and an index in it

    @property
    def events(self) -> list[Any]:
        return [batch.events[index] for batch, index in self.places]

    @property
    def ids(self) -> list[str | None]:
        """The id of each event; of one that is none, the reason."""
        return [event.reason if isinstance(event, Malformed) else event.id for event in self.events]

    @property
    def lines(self) -> list[tuple[str | None, int]]:
        """Each id with the line, or row, where it is."""
        lines = [batch.origin(index).line for batch, index in self.places]
        return list(zip(self.ids, lines, strict=True))

    def position(self, index: int) -> Any:
        """The position behind an event, as a store gives it back."""
        batch, place = self.places[index]
        return json.loads(json.dumps(batch.position(place + 1)))


def read(source: Any, many: int = 1000, *, polls: int = 10_000) -> Found:
    """Read what is there now, at most so many at a time."""
    found = Found()
    for _ in range(polls):
        batches = source.poll(many, 0.0)
        for batch in batches:
            found.places += [(batch, index) for index in range(len(batch.events))]
        if source.ended or (source.endless and not batches and not source.lag()[""]):
            break
    return found


def read_all(what: Path | str, many: int = 1000, **options: Any) -> Found:
    """Open a source and read it to its end; see `opened`."""
    with opened(what, **options) as source:
        return read(source, many)
