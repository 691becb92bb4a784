"""History of a run, for its status record: map versions, priors, alarms and the latest rejects.

What is kept is bounded, however long the run and however many its keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from streamcal.certificates.record import NO_CLAIM
from streamcal.engine.emissions import Mixing
from streamcal.engine.engine import Engine
from streamcal.monitor.status import Priors, RecordedAlarm, Versions
from streamcal.run.outcome import Outcome, PriorSnapshot
from streamcal.run.ports import Store
from streamcal.run.rows import OF_RUN, AlarmRow, RejectRow, VersionRow, alarm_rows

LATEST_REJECTS: Final = 20
"""Number of the latest rejects that are shown one by one."""

_MOST_POINTS: Final = 128
_MOST_ALARMS: Final = 50
_MOST_KEYS: Final = 128  # whose history is kept: far more than are shown

T = TypeVar("T")


class Thinned(Generic[T]):
    """Values in their order: up to a limit all, then ever fewer of those behind, and always the latest."""

    def __init__(self, limit: int = _MOST_POINTS) -> None:
        self._limit, self._kept = limit, list[T]()
        self._step, self._count = 1, 0
        self.latest: T | None = None

    def add(self, value: T) -> None:
        """Add one."""
        if self._count % self._step == 0:
            if len(self._kept) == self._limit:
                self._kept = self._kept[::2]
                self._step *= 2
            if self._count % self._step == 0:
                self._kept.append(value)
        self.latest = value
        self._count += 1

    @property
    def values(self) -> list[T]:
        """Values that are kept, and the latest."""
        if self.latest is None or (self._kept and self._kept[-1] is self.latest):
            return self._kept
        return [*self._kept, self.latest]


class Risks(msgspec.Struct):
    """Fields of a certificate that are shown over time."""

    risk: float | None = None
    target_risk: float | None = None
    cohorts: str | None = None
    pending: int = 0


class RunHistory:
    """History of a run that nothing else keeps: map versions, priors and the latest rejects."""

    def __init__(self) -> None:
        self._versions: dict[str | None, Thinned[VersionRow]] = {}
        self._priors: dict[str | None, Thinned[PriorSnapshot]] = {}
        self._alarms: deque[AlarmRow] = deque(maxlen=_MOST_ALARMS)
        self.rejects: deque[RejectRow] = deque(maxlen=LATEST_REJECTS)
        """The latest, with the raw text: newest last."""

    def take(self, outcome: Outcome) -> None:
        """Take note of what a micro-batch gave."""
        self.take_versions(each.row for each in outcome.versions)
        for (row, *_), prior in zip(outcome.versions, outcome.priors, strict=False):  # of a calibration: none
            self._take_prior(row.key, prior)
        self._alarms.extend(outcome.alarms)
        self.rejects.extend(outcome.rejects[-LATEST_REJECTS:])

    def take_versions(self, rows: Iterable[VersionRow]) -> None:
        """Take note of map versions, such as those of a store, in their order."""
        for row in rows:
            known = self._versions.get(row.key)
            if known is None:
                if len(self._versions) > _MOST_KEYS:
                    continue
                known = self._versions[row.key] = Thinned()
            if bytes(row.certificate) == b"null" and known.latest is not None:  # the newest one stands
                row = msgspec.structs.replace(row, certificate=known.latest.certificate)
            known.add(row)

    def versions(self, key: str | None) -> Versions:
        """Return the map versions of a key so far."""
        known = self._versions.get(key)
        return _versions([] if known is None else known.values)

    def priors(self, key: str | None, now: PriorSnapshot) -> Priors:
        """Return the running priors of a key up to now, and take note of the latest."""
        self._priors.setdefault(key, Thinned())  # a shown key always keeps its history
        self._take_prior(key, now)
        columns: list[list[Any]] = [list(column) for column in zip(*self._priors[key].values, strict=True)]
        return Priors(*columns)

    def alarms(self, engines: Mapping[str | None, Engine]) -> list[RecordedAlarm]:
        """Return the alarms, the newest last: those of some engines, then all others of this process."""
        raised = [row for key, engine in engines.items() for row in alarm_rows(key, engine.alarms)]
        raised += [row for row in self._alarms if row.code in OF_RUN or row.key not in engines]
        return [RecordedAlarm(*msgspec.structs.astuple(row)) for row in raised[-_MOST_ALARMS:]]

    def _take_prior(self, key: str | None, prior: PriorSnapshot) -> None:
        priors = self._priors.get(key)
        if priors is None:
            if len(self._priors) > _MOST_KEYS:
                return
            priors = self._priors[key] = Thinned()
        if priors.values[-1:] != [prior]:
            priors.add(prior)


def stored_history(store: Store) -> RunHistory:
    """Return the map versions and the latest rejects of a store.

    Raises as `streamcal.run.stored.stored_pipeline`.
    """
    history = RunHistory()
    history.take_versions(store.versions())
    history.rejects.extend(store.rejects())
    return history


def _versions(rows: Sequence[VersionRow]) -> Versions:
    found = [
        (
            row.version,
            row.time,
            msgspec.json.decode(row.certificate, type=Risks | None),
            msgspec.json.decode(row.mixture, type=Mixing | None),
        )
        for row in rows
    ]
    names = dict.fromkeys(name for *_, mixing in found if mixing is not None for name in mixing.weights)
    return Versions(
        [version for version, *_ in found],
        [time for _, time, *_ in found],
        [None if risks is None else claimed(risks.risk) for *_, risks, _ in found],
        [None if risks is None else claimed(risks.target_risk) for *_, risks, _ in found],
        {
            name: [0.0 if mixing is None else mixing.weights.get(name, 0.0) for *_, mixing in found]
            for name in names
        },
    )


def claimed(bound: float | None) -> float | None:
    """Return a certified bound; None where it claims nothing."""
    return bound if bound is not None and bound < NO_CLAIM else None
