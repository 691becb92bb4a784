"""``streamcal show`` and ``streamcal replay``: what a store holds, and whether its sources reproduce it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streamcal.certificates.record import NO_CLAIM
from streamcal.cli.terminal import run_table
from streamcal.engine.emissions import Mixing
from streamcal.errors import DamagedStateError
from streamcal.monitor.build import build_status
from streamcal.monitor.rows import GROUP_HEAD, group_rows, shown_value
from streamcal.monitor.run_history import Risks
from streamcal.monitor.status import Status
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Row, SegmentId, Store
from streamcal.run.rows import VersionRow
from streamcal.run.runner import Inputs, Runner
from streamcal.run.stored import stored_pipeline
from streamcal.segments.stored_rows import with_rows
from streamcal.times import show_time
from streamcal.values import shown

SHOWN_VERSIONS: Final = 20
"""Number of map versions that a table shows by default: the newest."""

_SHOWN_GROUPS: Final = 10
_SHOWN_KEYS: Final = 3  # that differ


class Contents(Status, kw_only=True):
    """Contents of a store."""

    certificates: dict[str, Any]
    """Certificates of the served maps by key, as of now; that of events without a key by the empty text."""
    older_versions: int
    """Number of map versions of these keys that are left out."""
    versions: list[VersionRow]
    """The others, in order."""
    positions: dict[str, dict[str, Any]]


def served(store: Store, keys: Sequence[str] = (), limit: int | None = None) -> Contents:
    """Read what a store holds.

    Parameters
    ----------
    keys
        to show; if empty: those of the first engines.
    limit
        how many map versions to show at most, the newest; None: all.

    Raises
    ------
    StoreError, DamagedStateError
        if the store cannot be read or is damaged.
    ValueError
        if the store has no such key.
    """
    checkpoint = store.load()
    pipeline = stored_pipeline(store) or Pipeline()
    known = set(checkpoint.engines)
    if not known <= set(pipeline.engines):
        raise DamagedStateError("the store is damaged: it has engines, but no state of a run")
    for name in keys:
        if name not in known:
            raise ValueError(f"the store has no key {name!r}; it has {len(known)} keys")
    status = build_status(pipeline, None, keys=keys)
    chosen = [engine.key for engine in status.engines]
    found = {key or "": pipeline.engines[key].certificate for key in chosen}
    rows: deque[VersionRow] = deque(maxlen=limit)
    versions = 0
    for row in store.versions():
        if row.key in chosen:
            versions += 1
            rows.append(row)
    return Contents(
        **{name: getattr(status, name) for name in Status.__struct_fields__},
        certificates={key: each and each.model_dump(mode="json") for key, each in found.items()},
        older_versions=versions - len(rows),
        versions=list(rows),
        positions=checkpoint.positions,
    )


def show_table(found: Contents) -> Group:
    """Format the result of `served` as tables of 80 columns: the newest versions, groups, closing table."""
    moved = _table(
        "Map versions, and what was certified of them: risk at most",
        ("time", "key", "version", "leader or weights", "of h", "in target"),
        left=("time", "key"),
    )
    for row in found.versions:
        certified = msgspec.json.decode(row.certificate, type=Risks | None) or Risks()
        mixing = msgspec.json.decode(row.mixture, type=Mixing | None)
        cells = (
            None if row.time is None else show_time(row.time, "%Y-%m-%d %H:%M"),
            row.key,
            row.version,
            ", ".join(f"{weight:.3f}" for weight in row.weights) if mixing is None else mixing.leader,
            *(
                "no claim" if risk is not None and risk >= NO_CLAIM else risk
                for risk in (certified.risk, certified.target_risk)
            ),
        )
        moved.add_row(*map(shown_value, cells))
    older = [Text(f"{found.older_versions:,} older versions: --limit N")] if found.older_versions else []
    groups = list[Text | Table]()
    if rows := group_rows(found.groups, _SHOWN_GROUPS):
        title = f"Segments, classes and keys, the worst {len(rows)} of {len(found.groups.name):,}"
        table = _table(title, GROUP_HEAD, left=GROUP_HEAD[:2])
        for group in rows:
            table.add_row(*map(Text, group))
        groups = [Text(), table]
    more = found.keys - len(found.engines)
    below = [Text(f"{more:,} more keys: --only KEY")] if more else []
    return Group(moved, *older, *groups, Text(), run_table(found), *below)


def replay(
    store: Store,
    pipeline: Pipeline,
    inputs: Inputs,
    stop: Callable[[], bool],
    after: Callable[[Outcome, float], None],
) -> tuple[str, bool]:
    """Rebuild the state from the sources; return how it compares with the store, and whether it is equal.

    ``pipeline`` is a new one; ``after`` is called after each micro-batch.

    Raises
    ------
    StoreError
        if the store cannot be read.
    OSError, ValueError
        if a source cannot be read, or the replay was stopped.
    """
    checkpoint = store.load()
    for source in inputs.sources:
        source.seek({})
        source.limit(checkpoint.positions.get(source.name, {}))
    nowhere = Outputs(NullSink())
    if not Runner(pipeline, inputs, nowhere, None, clock=lambda: 0.0, stop=stop, after=after).run():
        raise ValueError("the replay was stopped before its end, so nothing was compared")
    rebuilt, stored, segments = pipeline.engines, checkpoint.engines, _by_key(checkpoint.segments)
    keys, differ = rebuilt.keys() | stored.keys(), list[str | None]()
    for key in keys:
        here, there = rebuilt[key].to_bytes() if key in rebuilt else None, stored.get(key)
        if there is not None and key in segments:
            there = with_rows(there, segments[key])
        if here != there and (here is None or there is None or here != pipeline.as_written(key, there)):
            differ.append(key)
    labels = sum(engine.source.labels + engine.target.labels for engine in rebuilt.values())
    of = f"{len(keys):,} keys, {labels:,} labels" if len(keys) != 1 else f"{labels:,} labels"
    if not differ:
        return f"{of}: byte-equal", True
    named = ", ".join("events without a key" if key is None else shown(key) for key in differ[:_SHOWN_KEYS])
    return f"{of}: {len(differ):,} engines differ, such as that of {named}", False


def _table(title: str, columns: Sequence[str], *, left: Sequence[str]) -> Table:
    """Return an empty table; only a long key is folded, and no number."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        if column == "key":
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table


def _by_key(segments: Mapping[SegmentId, Row]) -> dict[str | None, list[tuple[int, str | None, Row]]]:
    """Return the corrections of each key: field, value and row."""
    found = defaultdict(list)
    for (key, field, name), row in segments.items():
        found[key].append((field, name, row))
    return found
