"""Emissions of the engine: answers, map versions, alarms and rejected events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import msgspec

from streamcal.certificates.record import Certificate, DriftAlarm
from streamcal.join.outcomes import Rejected
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.table import Mixing

__all__ = ["DriftAlarm", "Emission", "MapPublished", "Mixing", "Recalibrated", "Rejected"]


class Recalibrated(msgspec.Struct, frozen=True, gc=False):
    """The answer to a prediction: the probability for its score."""

    id: str | None
    score: float
    """Score of the model, in [0, 1]."""
    probability: float
    """Recalibrated probability of class 1, in [0, 1]."""
    map_version: int
    weights: tuple[float, float]
    """Weights (w₀, w₁) of the shift correction at that moment. With the map of this version, they reproduce
    the probability, but for the corrections of segments."""
    key: str | None = None
    """Key of the prediction, None if it has none."""
    time: float | None = None
    """Event time of the prediction, in seconds since the epoch; None if it has none."""


class MapPublished:
    """A new map version is served from now on.

    No event waits for its map and its certificate: each is worked out when it is first read, and is as of the
    event that began the version.

    Parameters
    ----------
    version
        number of the version.
    served
        function that returns the map.
    weights
        weights (w₀, w₁) of its shift correction.
    claim
        `streamcal.certificates.claim.Claim` of the map; None: none is published.
    key
        key of the engine; None if events have none.
    mixed
        `streamcal.mixture.mixture.Mixed` in mode ``auto``; None in the other modes.
    """

    __slots__ = ("_mixed", "_served", "claim", "key", "version", "weights")

    def __init__(
        self,
        version: int,
        served: Callable[[], RecalibrationMap],
        weights: tuple[float, float],
        claim: Any = None,
        key: str | None = None,
        mixed: Any = None,
    ) -> None:
        self.version: int = version
        self.key: str | None = key
        self.weights: tuple[float, float] = weights
        self.claim: Any = claim
        self._served, self._mixed = served, mixed

    @property
    def map(self) -> RecalibrationMap:
        """Map with its version and the weights of its shift correction."""
        served: RecalibrationMap = self._served()
        return served

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the map; None for the identity, and for versions that are published without."""
        certificate: Certificate | None = None if self.claim is None else self.claim.certificate
        return certificate

    @property
    def mixture(self) -> Mixing | None:
        """Weights of the candidates in mode ``auto``; None in the other modes."""
        mixing: Mixing | None = None if self._mixed is None else self._mixed.mixing
        return mixing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MapPublished):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in ("map", "certificate", "key", "mixture")
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # maps are compared by value

    def __repr__(self) -> str:
        return f"MapPublished(version={self.version}, key={self.key!r})"


Emission: TypeAlias = Recalibrated | MapPublished | DriftAlarm | Rejected
