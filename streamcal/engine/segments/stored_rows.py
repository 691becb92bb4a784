"""Corrections of a run that has a store: each is a row of it, written when it has changed.

An engine holds those that it has used last. `StoredRows` stands between the engines and the store: it has
what changed since the last commit, of engines that are put away, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from streamcal.engine.segments.corrections_c import Corrections, Name

_MOST: Final = 1 << 20  # in memory, of all fields and engines
_FEWEST: Final = 1024  # of each

Row = bytes
"""Correction: 16 float32."""

SegmentId = tuple[str | None, int, str | None]
"""Key of the engine, number of the field, and value of the field."""


class StoredRows:
    """Rows of all engines of a run.

    Parameters
    ----------
    stored
        those of the last commit, each read on demand.
    """

    def __init__(self, stored: Mapping[SegmentId, Row]) -> None:
        self._stored = stored
        self._changed: dict[SegmentId, Row] = {}
        self._most = _MOST

    def read(self, key: str | None, field: int, name: Name) -> Row | None:
        """Return the row of a segment, None if it has none."""
        segment = key, field, name
        found = self._changed.get(segment)
        return self._stored.get(segment) if found is None else found

    def take(self, key: str | None, fields: Iterable[Corrections]) -> None:
        """Take what has changed in the fields of an engine."""
        for number, field in enumerate(fields):
            field.take_changed(self._changed, key, number, self._most)

    def share(self, count: int) -> None:
        """Divide the memory between this number of fields of engines."""
        self._most = max(_MOST // max(count, 1), _FEWEST)

    def changes(self) -> dict[SegmentId, Row]:
        """Return what has changed since the last call; it is to be committed at once."""
        changed, self._changed = self._changed, {}
        return changed
