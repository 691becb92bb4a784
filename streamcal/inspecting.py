"""``streamcal show`` and ``streamcal replay``: what a store holds, and whether the sources give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streamcal.config import RunConfig
from streamcal.engine import Recalibrator
from streamcal.join import JoinCounts
from streamcal.pipeline import Pipeline, Tally
from streamcal.ports import Store
from streamcal.runner import Inputs, NullSink, Outputs, Runner, pipeline_state

__all__ = ["Served", "replay_table", "served", "show_table"]


class ServedEngine(msgspec.Struct):
    """The engine of one key."""

    key: str | None
    map_version: int
    bins: int | None
    source_labels: int
    source_prior: float | None
    target_labels: int
    target_prior: float | None


class ServedMap(msgspec.Struct):
    """A map version, when it was published, and what was certified of it."""

    version: int
    key: str | None
    time: float | None
    bins: int | None
    weights: Any
    certificate: Any


class Served(msgspec.Struct):
    """What a store holds."""

    engines: list[ServedEngine]
    maps: list[ServedMap]
    """Every version, in order."""
    tally: Tally
    join: JoinCounts
    pending: int
    positions: dict[str, dict[str, Any]]


def served(store: Store) -> Served:
    """Read what a store holds.

    Raises
    ------
    StoreError, DamagedStateError
        if it cannot be read, or is damaged.
    """
    checkpoint = store.load()
    own = pipeline_state(checkpoint)
    engines = []
    for key in _in_order(checkpoint.engines):
        engine = Recalibrator.from_bytes(checkpoint.engines[key])
        source, target = engine.source, engine.target
        engines.append(
            ServedEngine(
                key,
                engine.version,
                engine.map.bins,
                source.labels,
                source.prior,
                target.labels,
                target.prior,
            )
        )
    maps = []
    for row in store.maps():
        found = msgspec.json.decode(row.map)
        certificate = msgspec.json.decode(row.certificate)
        bins = len(found["values"]) if found.get("values") else None
        maps.append(ServedMap(row.version, row.key, row.time, bins, found.get("weights"), certificate))
    tally, join = (Tally(), JoinCounts()) if own is None else (own.tally, own.join.counts)
    return Served(engines, maps, tally, join, len(store.tables.pending), checkpoint.positions)


def show_table(found: Served) -> Group:
    """Return what `served` found as tables."""
    now = Table(title="Served now", title_justify="left", box=None, pad_edge=False)
    for column in ("key", "map version", "bins", "source labels", "prior", "target labels", "prior"):
        now.add_column(column, justify="left" if column == "key" else "right")
    for engine in found.engines:
        now.add_row(*map(_cell, msgspec.structs.astuple(engine)))
    moved = Table(title="Map versions", title_justify="left", box=None, pad_edge=False)
    for column in ("time", "key", "version", "bins", "weights", "certified risk", "of the target"):
        moved.add_column(column, justify="left" if column in ("time", "key") else "right")
    for row in found.maps:
        certificate = row.certificate if isinstance(row.certificate, dict) else {}
        when = None if row.time is None else f"{datetime.fromtimestamp(row.time, UTC):%Y-%m-%d %H:%M}"
        weights = ", ".join(f"{weight:.3f}" for weight in row.weights or ())
        moved.add_row(
            *map(
                _cell,
                (
                    when,
                    row.key,
                    row.version,
                    row.bins or "identity",
                    weights,
                    certificate.get("risk"),
                    certificate.get("target_risk"),
                ),
            )
        )
    totals = Text(
        f"{found.tally.events:,} events, {found.pending:,} predictions pending, "
        f"{found.join.joined:,} joined, {found.tally.rejected:,} rejected"
    )
    return Group(now, Text(), moved, Text(), totals)


def replay_table(
    store: Store, options: RunConfig, inputs: Inputs, stop: Callable[[], bool]
) -> tuple[Table, bool]:
    """Rebuild the state from the sources up to where the store is; compare, and say whether it is equal.

    Raises
    ------
    StoreError
        if the store cannot be read.
    OSError, ValueError
        if a source cannot be read, or the replay was stopped.
    """
    checkpoint = store.load()
    pipeline = Pipeline(options.recalibrator, options.join)
    for source in (*inputs.calibration, *inputs.deployment):
        source.seek({})
        source.limit(checkpoint.positions.get(source.name, {}))
    nowhere = Outputs(NullSink())
    if not Runner(pipeline, inputs, nowhere, None, clock=lambda: 0.0, stop=stop).run():
        raise ValueError("stopped before the end: nothing was compared")
    table = Table(box=None, pad_edge=False)
    for column in ("key", "source labels", "target labels", "state"):
        table.add_column(column)
    rebuilt = {key: engine.to_bytes() for key, engine in pipeline.engines.items()}
    equal = True
    for key in _in_order(rebuilt.keys() | checkpoint.engines.keys()):
        here, there = rebuilt.get(key), checkpoint.engines.get(key)
        same = here == there
        equal &= same
        counts = [Recalibrator.from_bytes(data) if data else None for data in (there, here)]
        table.add_row(
            _cell(key),
            *(
                " / ".join("none" if each is None else f"{getattr(each, domain).labels:,}" for each in counts)
                for domain in ("source", "target")
            ),
            "byte-equal" if same else "differs (store / rebuilt)",
        )
    return table, equal


def _in_order(keys: Iterable[str | None]) -> list[str | None]:
    return sorted(keys, key=lambda key: (key is not None, key or ""))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5f}" if isinstance(value, float) else str(value)
