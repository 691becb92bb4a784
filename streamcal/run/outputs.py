"""Outputs of a run: its sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from streamcal.base.errors import OutputError
from streamcal.run.ports import Position, Positions, Sink, StoppedError


class Outputs(msgspec.Struct):
    """Where a run's rows go."""

    answers: Sink
    rejects: Sink | None = None
    maps: Sink | None = None
    alarms: Sink | None = None

    @property
    def sinks(self) -> list[Sink]:
        """The sinks that are given."""
        given = self.answers, self.rejects, self.maps, self.alarms
        return [sink for sink in given if sink is not None]


class NullSink:
    """A sink that drops its rows."""

    name = "nowhere"

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:  # noqa: ARG002
        """Do nothing."""
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Do nothing."""

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002
        """Do nothing."""
        return None

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def writing(sink: Sink) -> Iterator[None]:
    """Let what a sink raises be an `OutputError` that names it."""
    try:
        yield
    except StoppedError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise OutputError(
            f"cannot write {sink.name}: {reason}" if reason else f"cannot write: {error}"
        ) from error
