"""``streamcal show`` and ``streamcal replay``: what a store holds, and whether its sources reproduce it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streamcal.engine.engine import Engine
from streamcal.events import DOMAINS
from streamcal.join.join import JoinCounts
from streamcal.run.config import RunConfig
from streamcal.run.pipeline import Pipeline, Tally
from streamcal.run.ports import Store
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner, pipeline_state
from streamcal.sketch.decoding import decoded

__all__ = ["SHOWN_KEYS", "Served", "replay_table", "served", "show_table"]

SHOWN_KEYS: Final = 20
"""How many keys are shown if none is asked for: the first that came."""


class ServedEngine(msgspec.Struct):
    """The engine of one key."""

    key: str | None
    map_version: int
    bins: int | None
    source_labels: int
    source_prior: float | None
    target_labels: int
    target_prior: float | None
    certificate: Any
    """The certificate of the map as of now; computed when it is shown."""


class ServedMap(msgspec.Struct):
    """A map version: when it was published, and its certificate then."""

    version: int
    key: str | None
    time: float | None
    bins: int | None
    weights: Any
    certificate: Any
    mixture: Any


class Served(msgspec.Struct):
    """What a store holds."""

    keys: int
    """How many keys there are."""
    engines: list[ServedEngine]
    """The engines of the keys that are shown."""
    maps: list[ServedMap]
    """Every map version of these keys, in order."""
    tally: Tally
    join: JoinCounts
    pending: int
    positions: dict[str, dict[str, Any]]


_Object: Any = dict[str, Any] | None


class _Shown(msgspec.Struct):
    """What is shown of a map."""

    values: list[float] = []
    weights: tuple[float, float] | None = None


def served(store: Store, keys: Sequence[str] = ()) -> Served:
    """Read what a store holds.

    Parameters
    ----------
    keys
        to show. If empty: the engine of events without a key and the first others, `SHOWN_KEYS` in all.

    Raises
    ------
    StoreError, DamagedStateError
        if the store cannot be read or is damaged.
    ValueError
        if the store has no such key.
    """
    checkpoint = store.load()
    own = pipeline_state(checkpoint)
    known = set(checkpoint.engines)
    for name in keys:
        if name not in known:
            raise ValueError(f"the store has no key {name!r}; it has {len(known)} keys")
    chosen = _in_order([*keys] or _first(checkpoint.engines))
    engines = []
    for key in chosen:
        engine = Engine.from_bytes(checkpoint.engines[key])
        source, target, certificate = engine.source, engine.target, engine.certificate
        engines.append(
            ServedEngine(
                key,
                engine.version,
                engine.map.bins,
                source.labels,
                source.prior,
                target.labels,
                target.prior,
                None if certificate is None else certificate.model_dump(mode="json"),
            )
        )
    maps, wanted = [], set(chosen)
    for row in store.maps():
        if row.key not in wanted:
            continue
        found = decoded(bytes(row.map), _Shown, "a map version", json=True)
        maps.append(
            ServedMap(
                row.version,
                row.key,
                row.time,
                len(found.values) or None,
                found.weights,
                decoded(bytes(row.certificate), _Object, "a certificate", json=True),
                decoded(bytes(row.mixture), _Object, "a mixture", json=True),
            )
        )
    tally, join = (Tally(), JoinCounts()) if own is None else (own.tally, own.join.counts)
    return Served(
        len(checkpoint.engines), engines, maps, tally, join, len(store.tables.pending), checkpoint.positions
    )


def show_table(found: Served) -> Group:
    """Format the result of `served` as tables."""
    now = Table(title="Served now", title_justify="left", box=None, pad_edge=False)
    columns = ("key", "map version", "bins", "source labels", "prior", "target labels", "prior")
    for column in (*columns, "certified risk", "of the target"):
        now.add_column(column, justify="left" if column == "key" else "right")
    for engine in found.engines:
        *values, claimed = msgspec.structs.astuple(engine)
        now.add_row(*map(_cell, (*values, *_risks(claimed))))
    if found.keys > len(found.engines):
        now.add_row(Text(f"{found.keys - len(found.engines):,} more: --key KEY"))
    moved = Table(title="Map versions", title_justify="left", box=None, pad_edge=False)
    for column in ("time", "key", "version", "bins", "weights", "certified risk", "of the target"):
        moved.add_column(column, justify="left" if column in ("time", "key") else "right")
    for row in found.maps:
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
                    *_risks(row.certificate),
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
    """Rebuild the state from the sources, and return a comparison with the store and whether they are equal.

    Raises
    ------
    StoreError
        if the store cannot be read.
    OSError, ValueError
        if a source cannot be read, or the replay was stopped.
    """
    checkpoint = store.load()
    pipeline = Pipeline(options.recalibrator, options.join, keys=options.keys)
    for source in (*inputs.calibration, *inputs.deployment):
        source.seek({})
        source.limit(checkpoint.positions.get(source.name, {}))
    nowhere = Outputs(NullSink())
    if not Runner(pipeline, inputs, nowhere, None, clock=lambda: 0.0, stop=stop).run():
        raise ValueError("the replay was stopped before its end, so nothing was compared")
    table = Table(box=None, pad_edge=False)
    for column in ("key", "source labels", "target labels", "state"):
        table.add_column(column)
    rebuilt, stored = pipeline.engines, checkpoint.engines
    keys = _in_order(rebuilt.keys() | stored.keys())
    shown, equal = set(_first(keys)), True
    for key in keys:
        here, there = rebuilt[key].to_bytes() if key in rebuilt else None, stored.get(key)
        same = here == there
        equal &= same
        if same and key not in shown:
            continue
        counts = [Engine.from_bytes(data) if data else None for data in (there, here)]
        table.add_row(
            _cell(key),
            *(
                " / ".join("none" if each is None else f"{getattr(each, domain).labels:,}" for each in counts)
                for domain in DOMAINS
            ),
            "byte-equal" if same else "differs (store / rebuilt)",
        )
    if len(keys) > len(shown):
        table.add_row(Text(f"{len(keys):,} keys; those not shown are byte-equal"))
    return table, equal


def _first(keys: Iterable[str | None]) -> list[str | None]:
    """Return the keys to show: None, which is for events without a key, and the first others."""
    keys = list(keys)
    return list(islice(sorted(keys, key=lambda key: key is not None), SHOWN_KEYS))


def _risks(certificate: Any) -> tuple[float | None, float | None]:
    found = certificate if isinstance(certificate, dict) else {}
    return found.get("risk"), found.get("target_risk")


def _in_order(keys: Iterable[str | None]) -> list[str | None]:
    return sorted(keys, key=lambda key: (key is not None, key or ""))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5f}" if isinstance(value, float) else str(value)
