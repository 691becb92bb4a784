"""The rows that a run writes: answers, rejects and map versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.events import Kept, KeptValue, Origin

__all__ = ["MapRow", "Recalibrated", "RejectRow", "answer_rows", "reject_row"]


class RejectRow(msgspec.Struct, frozen=True):
    """A rejected input: where it was, and why it was rejected."""

    source: str
    """Path of the file, or topic and partition."""
    line: int
    """Line in the file, from 1, or offset in the partition."""
    reason: str
    raw: str
    """The rejected text; of a longer one the first 4096 bytes."""


class MapRow(msgspec.Struct, frozen=True):
    """A map version that the run serves from now on."""

    version: int
    key: str | None
    """The key of the events that it is for; None: events without a key."""
    time: float | None
    """Event time of its publication, seconds since the epoch; None before the first event with a time."""
    map: msgspec.Raw
    """JSON of a `streamcal.RecalibrationMap`."""
    certificate: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.Certificate`; ``null`` if nothing is certified."""
    mixture: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.engine.emissions.Mixing`; ``null`` if the map is not a mixture."""


def reject_row(origin: Origin | None, reason: str) -> RejectRow:
    """Return the row of a reject; an event from no input has no origin."""
    if origin is None:
        return RejectRow("", 0, reason, "")
    return RejectRow(origin.source, origin.line, reason, origin.raw.decode("utf-8", "backslashreplace"))


def answer_rows(keep: Sequence[str]) -> Callable[[Recalibrated, Kept], Recalibrated]:
    """Return what makes the row of an answer: a `Recalibrated` with one more field for each kept value.

    Parameters
    ----------
    keep
        the names of these fields; any text.
    """
    fields: list[tuple[str, object, object]] = [
        (f"kept_{index}", KeptValue, None) for index in range(len(keep))
    ]
    row: Any = msgspec.defstruct(
        "AnswerRow",
        fields,
        bases=(Recalibrated,),
        rename={f"kept_{index}": name for index, name in enumerate(keep)},
        frozen=True,
        gc=False,
    )

    def row_of(answer: Recalibrated, kept: Kept) -> Recalibrated:
        made: Recalibrated = row(*msgspec.structs.astuple(answer), *kept)
        return made

    return row_of
