"""``streamcal show`` and ``streamcal replay``: what a store holds, and whether its sources reproduce it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streamcal.certificates.record import NO_CLAIM
from streamcal.cli.terminal import verdict_text
from streamcal.engine.engine import Engine
from streamcal.errors import DamagedStateError
from streamcal.events import DOMAINS
from streamcal.join.outcomes import JoinCounts
from streamcal.monitor.build import class_rating, group_columns, served_engine, verdicts
from streamcal.monitor.rows import GROUP_HEAD, delay_rows, group_rows, held_rows, rating_rows, shown_value
from streamcal.monitor.status import ClassRating, GroupColumns, Served
from streamcal.quality.delays import Delay
from streamcal.quality.figures import Figures
from streamcal.quality.verdict import Verdict
from streamcal.run.outcome import RunCounts
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import Row, SegmentId, Store
from streamcal.run.rows import MapRow
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from streamcal.run.stored import stored_pipeline
from streamcal.segments.stored_rows import with_rows
from streamcal.sketch.decoding import decoded
from streamcal.times import show_time

__all__ = ["SHOWN_KEYS", "SHOWN_MAPS", "Contents", "replay_table", "served", "show_table"]

SHOWN_KEYS: Final = 20
"""Number of keys that are shown if none is asked for: the first that came."""

SHOWN_MAPS: Final = 20
"""Number of map versions that a table shows by default: the newest."""


class StoredEngine(Served):
    """The engine of one key, with all of its certificate."""

    certificate: Any = None
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


class Contents(msgspec.Struct):
    """Contents of a store."""

    verdict: Verdict
    """Verdict on the served forecasts."""
    keys: int
    """Number of all keys."""
    engines: list[StoredEngine]
    """The engines of the keys that are shown."""
    older_maps: int
    """Number of map versions of these keys that are left out."""
    maps: list[ServedMap]
    """The others, in order."""
    tally: RunCounts
    quality: dict[str, Figures]
    """Quality of the forecasts, before and after recalibration."""
    groups: GroupColumns
    """Segments and keys, the worst first."""
    join: JoinCounts
    pending: int
    delay: Delay
    """Delay of the labels, and the share that may yet come."""
    positions: dict[str, dict[str, Any]]
    classes: ClassRating | msgspec.UnsetType = msgspec.UNSET
    """Figures of many classes; the others are then of the decision."""


_NO_CLAIM: Final = "no claim"

_SHOWN_GROUPS: Final = 10

_Object: Any = dict[str, Any] | None


class _Shown(msgspec.Struct):
    """Fields of a map that are shown."""

    values: list[float] = []
    knots: list[float] = []
    weights: tuple[float, float] | None = None


def served(store: Store, keys: Sequence[str] = (), limit: int | None = None) -> Contents:
    """Read what a store holds.

    Parameters
    ----------
    keys
        to show. If empty: the engine of events without a key and the first others, `SHOWN_KEYS` in all.
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
    chosen = _in_order([*keys] or _first(checkpoint.engines))
    engines = []
    for key in chosen:
        engine = pipeline.engines[key]
        certificate = engine.certificate
        full = None if certificate is None else certificate.model_dump(mode="json")
        engines.append(StoredEngine(**msgspec.structs.asdict(served_engine(key, engine)), certificate=full))
    wanted = set(chosen)
    rows: deque[MapRow] = deque(maxlen=limit)
    versions = 0
    for row in store.maps():
        if row.key in wanted:
            versions += 1
            rows.append(row)
    maps = [_served_map(row) for row in rows]
    return Contents(
        verdicts(pipeline)[None],
        len(known),
        engines,
        versions - len(maps),
        maps,
        pipeline.tally,
        pipeline.quality.figures,
        group_columns(pipeline.quality),
        pipeline.join.counts,
        pipeline.join.pending,
        pipeline.delay,
        checkpoint.positions,
        class_rating(pipeline.quality),
    )


def _served_map(row: MapRow) -> ServedMap:
    found = decoded(bytes(row.map), _Shown, "a map version", json=True)
    return ServedMap(
        row.version,
        row.key,
        row.time,
        len(found.values) or len(found.knots) or None,
        found.weights,
        decoded(bytes(row.certificate), _Object, "a certificate", json=True),
        decoded(bytes(row.mixture), _Object, "a mixture", json=True),
    )


def show_table(found: Contents) -> Group:
    """Format the result of `served` as tables: what matters most comes last. They fit into 80 columns."""
    moved = _table(
        "Map versions, and what was certified of them: risk at most",
        ("time", "key", "version", "bins", "weights", "of h", "in target"),
        left=("time", "key"),
    )
    for row in found.maps:
        weights = ", ".join(f"{weight:.3f}" for weight in row.weights or ())
        risks = _risks(row.certificate)
        cells = (
            None if row.time is None else show_time(row.time, "%Y-%m-%d %H:%M"),
            row.key,
            row.version,
            row.bins or "identity",
            weights,
            *risks,
        )
        moved.add_row(*map(shown_value, cells))
    above = [Text(f"{found.older_maps:,} older versions: --limit N")] if found.older_maps else []
    totals = Text(
        f"{found.tally.events:,} events, {found.pending:,} predictions pending, "
        f"{found.join.joined:,} joined, {found.tally.rejected:,} rejected"
    )
    came = _table("How labels came", ("", ""), left=("",))
    came.show_header = False
    for name, value in delay_rows(found.delay):
        came.add_row(name, value)
    for engine in found.engines:
        for name, value in held_rows(engine.held, "" if len(found.engines) == 1 else f" [{engine.key}]"):
            came.add_row(Text(name), value)
    judged = _table("How good the forecasts were, by the joined labels", ("", "before", "after"), left=("",))
    for figures in rating_rows(found.quality, found.classes):
        judged.add_row(*figures)
    groups = _groups_table(found.groups)
    shown_groups: list[Text | Table] = [] if groups is None else [Text(), groups]
    now = _table(
        "Served now, and what is certified of it: risk at most",
        (
            "key",
            "version",
            "bins",
            "source\nlabels",
            "prior",
            "target\nlabels",
            "prior",
            "of h",
            "in\ntarget",
        ),
        left=("key",),
    )
    below = []
    for engine in found.engines:
        cells = (engine.key, engine.version, engine.bins, engine.source_labels, engine.source_prior)
        more_cells = engine.target_labels, engine.target_prior, *_risks(engine.certificate)
        now.add_row(*map(shown_value, (*cells, *more_cells)))
        name, claim = "" if engine.key is None else f"{engine.key}: ", engine.certified
        if claim is not None and claim.cohorts == "matured":
            below.append(Text(f"{name}certified by matured cohorts, {claim.pending:,} labels pending"))
        if claim is not None and claim.bounds[-1].value is None:
            below.append(Text(f"{name}risk {claim.bounds[-1].of}: {claim.bounds[-1].words}"))
    more = found.keys - len(found.engines)
    below += [Text(f"{more:,} more keys: --only KEY")] if more else []
    verdict = verdict_text(found.verdict)
    return Group(
        verdict,
        Text(),
        moved,
        *above,
        Text(),
        totals,
        Text(),
        came,
        Text(),
        judged,
        *shown_groups,
        Text(),
        now,
        *below,
    )


def _groups_table(groups: GroupColumns) -> Table | None:
    """Return the table of the worst segments and keys; None if there are none."""
    rows = group_rows(groups, _SHOWN_GROUPS)
    if not rows:
        return None
    title = f"Segments, classes and keys, the worst {len(rows)} of {len(groups.name):,}"
    table = _table(title, GROUP_HEAD, left=GROUP_HEAD[:2])
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def replay_table(
    store: Store,
    pipeline: Pipeline,
    inputs: Inputs,
    stop: Callable[[], bool],
    after: Callable[[Outcome, float], None],
) -> tuple[Table, bool]:
    """Rebuild the state from the sources, and return a comparison with the store and whether they are equal.

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
    table = Table(box=None, pad_edge=False)
    for column in ("key", "source labels", "target labels", "state"):
        table.add_column(column)
    rebuilt, stored, segments = pipeline.engines, checkpoint.engines, _by_key(checkpoint.segments)
    keys = _in_order(rebuilt.keys() | stored.keys())
    shown, equal = set(_first(keys)), True
    for key in keys:
        here, there = rebuilt[key].to_bytes() if key in rebuilt else None, stored.get(key)
        if there is not None and pipeline.segments.fields:
            there = with_rows(there, segments.get(key, ()))
        same = here == there or (
            here is not None and there is not None and here == pipeline.as_written(key, there)
        )
        equal &= same
        if same and key not in shown:
            continue
        counts = [Engine.from_bytes(data) if data else None for data in (there, here)]
        table.add_row(
            shown_value(key),
            *(
                " / ".join("none" if each is None else f"{getattr(each, domain).labels:,}" for each in counts)
                for domain in DOMAINS
            ),
            "byte-equal" if same else "differs (store / rebuilt)",
        )
    if len(keys) > len(shown):
        table.add_row(Text(f"{len(keys):,} keys; those not shown are byte-equal"))
    return table, equal


def _table(title: str, columns: Sequence[str], *, left: Sequence[str]) -> Table:
    """Return an empty table; only a long key is folded, and no number."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        if column == "key":
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table


def _first(keys: Iterable[str | None]) -> list[str | None]:
    """Return the keys to show: None, which is for events without a key, and the first others."""
    keys = list(keys)
    return list(islice(sorted(keys, key=lambda key: key is not None), SHOWN_KEYS))


def _risks(certificate: Any) -> list[float | str | None]:
    found = certificate if isinstance(certificate, dict) else {}
    risks = found.get("risk"), found.get("target_risk")
    return [_NO_CLAIM if risk is not None and risk >= NO_CLAIM else risk for risk in risks]


def _in_order(keys: Iterable[str | None]) -> list[str | None]:
    return sorted(keys, key=lambda key: (key is not None, key or ""))


def _by_key(segments: Mapping[SegmentId, Row]) -> dict[str | None, list[tuple[int, str | None, Row]]]:
    """Return the corrections of each key: field, value and row."""
    found = defaultdict(list)
    for (key, field, name), row in segments.items():
        found[key].append((field, name, row))
    return found
