"""The map that a mixture serves, and its weights; both are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.forecasts_c import Snapshot
from streamcal.mixture.mixed_c import MixedSteps
from streamcal.mixture.table import Table
from streamcal.sketch.decoding import Probability
from streamcal.values import Floats

__all__ = ["Mixed", "Mixing"]


class Mixing(msgspec.Struct, frozen=True):
    """Weights of the candidates in the map of mode ``auto``."""

    leader: str
    """Candidate with the largest weight."""
    weights: dict[str, Probability]
    """Positive weights by candidate; they sum to 1."""
    reason: str | None = None
    """Reason why the leader differs from that of the version before; None if it does not."""


class Mixed:
    """A new map, and its weights; both are computed when they are first asked for.

    Parameters
    ----------
    table, snapshot
        table and snapshot that are mixed.
    names
        names of all candidates.
    leader, reason
        As in `Mixing`.
    """

    def __init__(
        self, table: Table, snapshot: Snapshot, names: Sequence[str], leader: str, reason: str | None
    ) -> None:
        self._table, self._snapshot, self._names = table, snapshot, names
        self._leader, self._reason = leader, reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixed) and (self.map, self.mixing) == (other.map, other.mixing)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def map(self) -> RecalibrationMap:
        """Map to serve from now on: a step map of version 0, without shift correction."""
        # All that the constructor checks holds already.
        return RecalibrationMap.model_construct(
            version=0, edges=self._table.edges, values=tuple(self._values.tolist()), weights=(1.0, 1.0)
        )

    @cached_property
    def steps(self) -> MixedSteps:
        """Same map, only to be evaluated at single scores."""
        return MixedSteps(self._table, self._snapshot)

    @cached_property
    def _values(self) -> Floats:
        return self._table.mixed(self._snapshot)

    @cached_property
    def mixing(self) -> Mixing:
        """Weights of the candidates."""
        named: dict[str, float] = {}
        for name, weight in zip(self._names, self._snapshot.weights[0].tolist(), strict=True):
            if weight > 0.0:
                named[name] = named.get(name, 0.0) + weight
        return Mixing(self._leader, named, self._reason)
