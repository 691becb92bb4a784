"""Events of a log of lines like ``request-17 0.93``; `streamcal.run.ports` says what a method promises."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from streamcal.events import Event, Origin, PredictionEvent
from streamcal.events.codec import Malformed


class Batch:
    """Lines of the log; positions are [byte, line]."""

    partition = ""

    def __init__(self, name: str, at: list[int], lines: list[bytes]) -> None:
        self._name, self._at, self._lines = name, at, lines
        self.events: Sequence[Event | Malformed] = [event(line) for line in lines]

    def origin(self, index: int) -> Origin:
        """Return where an event was."""
        return Origin(self._name, self._at[1] + index + 1, self._lines[index].rstrip())

    def position(self, count: int) -> list[int]:
        """Return where to continue after so many events."""
        return [self._at[0] + sum(map(len, self._lines[:count])), self._at[1] + count]


class Source:
    """The log, read from a position to its end."""

    endless, ended = False, False
    unknown_fields: Mapping[str, int] = {}

    def __init__(self, path: Path) -> None:
        self.name, self._file, self._at = str(path), path.open("rb"), [0, 0]
        self._until: int | None = None

    def seek(self, positions: Mapping[str, Any]) -> Mapping[str, Any]:
        """Go to a position, or to the beginning."""
        self._at = positions.get("", [0, 0])
        return {"": self._at}

    def limit(self, positions: Mapping[str, Any] | None) -> None:
        """End at a position."""
        self._until = None if positions is None else positions.get("", [0, 0])[1]
        self.ended = self._until is not None and self._at[1] >= self._until

    def poll(self, max_events: int, timeout: float) -> Sequence[Batch]:  # noqa: ARG002  # a file never waits
        """Return the next lines."""
        self._file.seek(self._at[0])
        count = max_events if self._until is None else min(max_events, self._until - self._at[1])
        batch = Batch(self.name, self._at, list(islice(self._file, count)))
        self.ended, self._at = not batch.events, batch.position(len(batch.events))
        return [batch]

    def lag(self) -> Mapping[str, float]:
        """Return how much is still to be read: unknown."""
        return {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Connector:
    """What the scheme ``scorelog:`` leads to."""

    def source(self, url: str, options: object) -> Source:  # noqa: ARG002  # it has none
        """Open a log."""
        return Source(Path(url.removeprefix("scorelog:")))


def event(line: bytes) -> Event | Malformed:
    """Return the prediction of a line, or what is wrong with it."""
    try:
        id_, score = line.decode().split()
        if not 0.0 <= float(score) <= 1.0:
            return Malformed("bad_score", {"value": float(score)})
        return PredictionEvent(id_, float(score))
    except ValueError as error:
        return Malformed("malformed", {"error": str(error)})
