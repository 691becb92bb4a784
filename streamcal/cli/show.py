"""``streamcal show``: what a store holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streamcal.base.errors import DamagedStateError
from streamcal.base.times import show_time
from streamcal.certificates.record import NO_CLAIM
from streamcal.cli.terminal import run_table
from streamcal.engine.emissions import Mixing
from streamcal.monitor.build import build_status
from streamcal.monitor.rows import GROUP_HEAD, group_rows, shown_value
from streamcal.monitor.run_history import Risks
from streamcal.monitor.status import Status
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Store
from streamcal.run.rows import VersionRow
from streamcal.run.stored import stored_pipeline

SHOWN_VERSIONS: Final = 20
"""Number of map versions that a table shows by default: the newest."""

_SHOWN_GROUPS: Final = 10


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


def _table(title: str, columns: Sequence[str], *, left: Sequence[str]) -> Table:
    """Return an empty table; only a long key is folded, and no number."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        if column == "key":
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table
