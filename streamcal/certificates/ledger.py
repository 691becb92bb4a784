"""The certificates of one engine over its life: what each version may claim, and what was refuted.

A certificate is worked out when it is asked for, from the cells as they were when the version was formed, and
kept. Memory: those cells in compact form, and at most `MOST_CERTIFICATES` certificates.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np

from streamcal.certificates.claims import Claims, Formed, Target
from streamcal.certificates.record import LABEL_SHIFT_REFUTED, MONOTONE_REFUTED, Certificate, make_certificate
from streamcal.certificates.shift_watch import LabelShiftWatch
from streamcal.certificates.source import version_delta
from streamcal.errors import DamagedStateError
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["MOST_CERTIFICATES", "Certifier", "DriftAlarm"]

MOST_CERTIFICATES: Final = 64
"""How many certificates the history keeps: when there are more, every second one goes."""

# Shares of δ where label shift carries a claim from the source to a target: for versions formed from the
# source, for priors and masses of the target, and for versions formed from the target (mode auto has both).
_SOURCE, _TARGET, _TARGET_VERSIONS = 0.6, 0.2, 0.2
_ALPHA: Final = 0.1  # α of the label-shift test in units of δ, beyond it


class DriftAlarm(msgspec.Struct, frozen=True):
    """An assumption behind the certificates is refuted; it is raised once."""

    assumption: str
    """The assumption, in the words of the certificates."""
    reason: str
    """What refuted it."""
    target_labels: int
    """How many labelled target scores there were by then."""
    key: str | None = None


class _FormedState(msgspec.Struct):
    cells: bytes
    splits: list[int]
    choices: int
    place: int
    domain: Domain


class _State(msgspec.Struct):
    formed: list[_FormedState]
    version: int
    on_schedule: bool
    alarms: list[DriftAlarm]
    generation: int
    watch: bytes | None


class Certifier:
    """Works out and remembers the certificates of an engine, and tests their assumptions.

    Parameters
    ----------
    delta
        δ in (0, 1), for the whole life of the stream.
    max_cells
        that of the engine's sketches.
    mode
        of the engine. Unless it is ``source`` or ``target``, the served map claims something of a target by
        label shift: δ then pays for both sides, and the target's labels are watched. In ``label_shift`` h is
        the identity, and the bins only serve to certify it; in ``auto`` they certify the mixture.
    windowed
        whether versions are formed from a window of the labels.
    """

    __slots__ = (
        "_alarms",
        "_claims",
        "_delta",
        "_formed",
        "_history",
        "_max_cells",
        "_mode",
        "_on_schedule",
        "_shifts",
        "_version",
        "_windowed",
        "generation",
        "watch",
    )

    def __init__(self, delta: float, max_cells: int, mode: str, *, windowed: bool = False) -> None:
        self._delta = delta
        self._max_cells = max_cells
        self._mode = mode
        self._windowed = windowed
        self._shifts = mode not in ("source", "target")
        self._formed: dict[Domain, Formed] = {}
        self._version = 0
        self._on_schedule = True
        self._claims: dict[Domain, Claims] = {}
        self._history: list[Certificate] = []
        self._alarms: list[DriftAlarm] = []
        self.generation = 0
        """How many times the source was replaced after label shift had been refuted."""
        self.watch = self._new_watch()
        """Where target labels go; None if nothing is claimed by label shift."""

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """The assumptions refuted so far, each once."""
        return tuple(self._alarms)

    @property
    def history(self) -> tuple[Certificate, ...]:
        """The certificates so far, thinned, oldest first."""
        return tuple(self._history)

    def form(self, formed: Formed) -> None:
        """Take note of a map that was formed on schedule."""
        self._formed[formed.domain] = formed
        self._claims.pop(formed.domain, None)
        self._on_schedule = True

    def form_off_schedule(self) -> None:
        """Take note of a map that was formed off schedule: what is certified is still the one before."""
        self._on_schedule = False

    def serve(self, version: int) -> None:
        """Take note of a version that begins on schedule."""
        if self._on_schedule:
            self._version = version

    def look(self, source: ScoreSketch, target: ScoreSketch, target_labels: int) -> bool:
        """Look whether the target's labels refute label shift now; see `LabelShiftWatch.look`."""
        if self.watch is None or not self.watch.look(source, target):
            return False
        reason = f"log e-value {self.watch.log_e:.1f} of the label-shift test"
        if self.generation:
            reason += f", source generation {self.generation}"
        self._alarms.append(DriftAlarm(LABEL_SHIFT_REFUTED, reason, target_labels))
        return True

    def replace_source(self) -> None:
        """Take note that the source is another from now on, and test label shift anew."""
        self.generation += 1
        self.watch = self._new_watch()

    def certificate(self, target: Target, time: float | None) -> Certificate | None:
        """Return the certificate of the served map; None before the first version.

        Of a map formed off schedule nothing is claimed: it is then that of the version before, and says so.

        Parameters
        ----------
        target
            what is known of the target now.
        time
            event time now, seconds.
        """
        formed = self._formed.get("target") or self._formed.get("source")
        if formed is None:
            return None
        claims = self._claims_of(formed)
        if self._mode == "auto":
            bound = claims.bound_of(target.served)
        elif self._mode == "label_shift":
            bound = claims.bound_of(RecalibrationMap(version=0))
        else:
            bound = claims.own
        refuted = self.watch is not None and self.watch.refuted
        source = self._formed.get("source")
        shifted = None
        if source is not None and self._shifts and target.labels[1] and not self.generation:
            shifted = 1.0 if refuted else self._target_risk(source, target)
        by_shift = shifted is not None and (formed.domain == "source" or shifted < bound.risk)
        certificate = make_certificate(
            version=self._version,
            time=time,
            bound=bound,
            domain=formed.domain,
            labels=claims.labels,
            delta=self._delta,
            target_labels=target.labels,
            target_risk=shifted if by_shift else bound.risk if formed.domain == "target" else None,
            by_label_shift=by_shift,
            label_shift_refuted=refuted,
            windowed=self._windowed,
            served_bins=target.served.bins if self._mode in ("auto", "label_shift") else None,
            on_schedule=self._on_schedule,
        )
        if not bound.monotone and all(alarm.assumption != MONOTONE_REFUTED for alarm in self._alarms):
            reason = "two bins have certain rates in the wrong order"
            self._alarms.append(DriftAlarm(MONOTONE_REFUTED, reason, target.labels[1]))
        self._remember(certificate)
        return certificate

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes.

        The history is not part of it: it tells when certificates were asked for, not what was learned.
        """
        formed = [
            _FormedState(each.cells, each.splits.tolist(), each.choices, each.place, domain)
            for domain, each in sorted(self._formed.items())
        ]
        watch = None if self.watch is None else self.watch.to_bytes()
        return msgspec.msgpack.encode(
            _State(formed, self._version, self._on_schedule, self._alarms, self.generation, watch)
        )

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.msgpack.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise DamagedStateError(f"not the state of a certifier: {error}") from None
        for known in state.formed:
            sketch = ScoreSketch.from_bytes(known.cells)
            splits = np.array(known.splits, np.int64)
            if len(splits) < 2 or splits[0] or splits[-1] != len(sketch.cells) or (np.diff(splits) < 1).any():
                raise DamagedStateError("not the state of a certifier: its bins are not those of its cells")
            self.form(Formed(known.cells, splits, known.choices, known.place, known.domain))
        self._version, self._on_schedule, self._alarms = state.version, state.on_schedule, state.alarms
        self.generation = state.generation
        self.watch = self._new_watch()
        if self.watch is not None and state.watch is not None:
            self.watch.restore(state.watch)
        return self

    def _new_watch(self) -> LabelShiftWatch | None:
        if not self._shifts:
            return None
        # Only mode auto replaces its source: the shares of all its generations sum to α.
        share = 1.0 / ((self.generation + 1) * (self.generation + 2)) if self._mode == "auto" else 1.0
        return LabelShiftWatch(share * _ALPHA * self._delta, self._max_cells)

    def _claims_of(self, formed: Formed) -> Claims:
        claims = self._claims.get(formed.domain)
        if claims is None:
            share = 1.0
            if self._shifts:
                share = _SOURCE if formed.domain == "source" else _TARGET_VERSIONS
            claims = Claims(formed, version_delta(share * self._delta, formed.place))
            self._claims[formed.domain] = claims
        return claims

    def _target_risk(self, source: Formed, target: Target) -> float:
        composite = self._mode == "composite"
        return self._claims_of(source).target_risk(target, composite=composite, delta=_TARGET * self._delta)

    def _remember(self, certificate: Certificate) -> None:
        if self._history and self._history[-1].version == certificate.version:
            self._history.pop()
        self._history.append(certificate)
        if len(self._history) > MOST_CERTIFICATES:
            self._history = self._history[-1::-2][::-1]
