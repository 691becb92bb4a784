"""A join whose tables are in a store equals the join in memory, however the stream is cut into batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamcal_connectors.sqlite.id_index import IdIndex
from streamcal_connectors.sqlite.store import SqliteConnector

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.engine.emissions import Rejected
from streamcal.events import Event
from streamcal.join.join import Join
from streamcal.join.stored_table import StoredTable
from streamcal.join.tables import Early, MemoryTable, MemoryTables, Pending, Settled
from streamcal.run.ports import Change
from tests.join.recorder import EVENTS, Recorder, emissions


class ListRows:
    """Rows of a table in a list: what a store has to do, by the letter."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, object]] = []

    def after(self, seq: int, limit: int) -> list:
        return [row for row in self.rows if row[0] > seq][: min(limit, 2)]

    def extent(self) -> tuple[int, int]:
        return len(self.rows), self.rows[-1][0] if self.rows else 0

    def commit(self, table: StoredTable) -> None:
        first, added, removed, replaced = table.changes()
        assert set(removed) <= {row[:2] for row in self.rows}
        assert replaced.keys() <= {seq for seq, *_ in self.rows}
        self.rows = [
            (seq, id_, replaced.get(seq, entry)) for seq, id_, entry in self.rows if (seq, id_) not in removed
        ]
        self.rows += [(seq, id_, entry) for seq, (id_, entry) in enumerate(added.items(), first)]
        assert len({id_ for _, id_, _ in self.rows}) == len(self.rows) == len(table)


class ListTables:
    def __init__(self) -> None:
        self.rows = [ListRows() for _ in range(3)]
        self.pending: StoredTable[Pending] = StoredTable(self.rows[0])
        self.early: StoredTable[Early] = StoredTable(self.rows[1])
        self.settled: StoredTable[Settled] = StoredTable(self.rows[2])
        self.asked: set[str] = set()

    def prefetch(self, ids) -> None:
        self.asked = set(ids)
        for rows, table in zip(self.rows, (self.pending, self.early, self.settled), strict=True):
            table.take([row for row in rows.rows if row[1] in self.asked])

    def flush(self) -> None:
        self.commit()
        self.prefetch(self.asked)

    def commit(self) -> None:
        for rows, table in zip(self.rows, (self.pending, self.early, self.settled), strict=True):
            rows.commit(table)


OPTIONS = st.fixed_dictionaries(
    {"corrections": st.booleans()},
    optional={"matured_after": st.sampled_from([4.0, 12.0])},
).map(lambda options: options | {"unlabelled": "negative" if "matured_after" in options else "drop"})


@given(EVENTS, st.lists(st.integers(1, 7), min_size=1), st.integers(1, 5), st.integers(1, 4), OPTIONS)
def test_stored_tables_join_as_those_in_memory(
    events: list[Event], cuts: list[int], bound: int, portion: int, options: dict[str, Any]
) -> None:
    with patch.multiple("streamcal.join.join", PORTION=portion, PER_EVENT=0):
        join_both(events, cuts, JoinConfig(label_ttl=10.0, max_pending=bound, **options))


def join_both(events: list[Event], cuts: list[int], config: JoinConfig) -> None:
    plain_tables, tables = MemoryTables(), ListTables()
    plain, stored = Join(config, plain_tables), Join(config, tables)
    learned = Recorder(), Recorder()
    start = 0
    for size in cuts * (len(events) // len(cuts) + 1):
        batch = events[start : start + size]
        start += size
        stored.prefetch([event.id for event in batch if event.id is not None])
        for event in batch:
            assert emissions(stored, event, learned[1]) == emissions(plain, event, learned[0])
            assert stored.pending == plain.pending
        if batch:
            tables.commit()
    assert learned[0].learned == learned[1].learned
    assert stored.state == plain.state
    for rows, table in zip(
        tables.rows, (plain_tables.pending, plain_tables.early, plain_tables.settled), strict=True
    ):
        assert [(id_, entry) for _, id_, entry in rows.rows] == list(table.entries.items())
    assert stored.close() == plain.close()


def test_an_id_that_is_put_again_is_the_latest() -> None:
    table: StoredTable[Settled] = StoredTable(ListRows())
    for id_ in "abc":
        table.entries[id_] = Settled(None, 1)
    assert table.pop_oldest()[0] == "a"
    del table.entries["b"]
    for id_ in "db":
        table.entries[id_] = Settled(None, 0)
    assert [table.pop_oldest()[0] for _ in range(3)] == ["c", "d", "b"]
    assert table.oldest() is None


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 12), max_size=9)), max_size=12))
def test_an_id_index_is_a_multimap(steps: list[tuple[bool, list[int]]]) -> None:
    """Places are numbered on; hashes are few, so that ids share them."""
    index, held, place = IdIndex(), [], 0
    for adds, keys in steps:
        if adds:
            new = [(key, place + i) for i, key in enumerate(keys)]
            place += len(new)
            index.add(np.array([key for key, _ in new], np.int64), np.array([p for _, p in new], np.int64))
            held += new
        else:
            gone = [pair for pair in held if pair[0] in keys][::2]
            index.remove(np.array([k for k, _ in gone], np.int64), np.array([p for _, p in gone], np.int64))
            held = [pair for pair in held if pair not in gone]
        assert len(index) == len(held)
        for some in (keys, range(13)):
            found = index.find(np.array(some, np.int64)).tolist()
            assert found == sorted(p for key, p in held if key in some)


def test_an_id_index_does_not_grow_by_what_is_gone() -> None:
    """A run holds no more than there was when it was made, and each less than half of the one before it."""
    index, some, alive = IdIndex(), 100, 300
    for start in range(0, 100 * some, some):
        places = np.arange(start, start + some)
        index.add(places * 7919 % 10_007, places)
        if start >= alive:
            gone = places - alive
            index.remove(gone * 7919 % 10_007, gone)
        assert sum(len(each) for each, _ in index._runs) < 2 * (alive + some)
    assert len(index) == alive


def random_events(rng: random.Random, count: int) -> list[Event]:
    """Return a stream in which every outcome of the join occurs."""
    events: list[Event] = []
    for i in range(count):
        id_, time = f"é{rng.randrange(count // 2)}", float(i + rng.randrange(-20, 20))
        kind = rng.random()
        if kind < 0.5:
            events.append(PredictionEvent(id_, rng.random(), time, rng.choice([None, "k"])))
        elif kind < 0.95:
            events.append(LabelEvent(id_, rng.randrange(2), time if rng.random() < 0.9 else None))
        else:
            events.append(LabelledEvent(rng.random(), rng.randrange(2), id_, time))
    return events


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (0, {}),
        (1, {}),
        (2, {"corrections": True}),
        (3, {"unlabelled": "negative", "matured_after": 40.0}),
        (4, {"unlabelled": "negative", "matured_after": 40.0, "corrections": True}),
    ],
)
def test_sqlite_tables_join_as_those_in_memory(
    tmp_path: Path, seed: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("streamcal.join.join.PORTION", 20 + 100 * seed)
    monkeypatch.setattr("streamcal.join.join.PER_EVENT", 0)
    config = JoinConfig(label_ttl=700.0, max_pending=rng.choice([90, 10_000]), **options)
    plain = Join(config)
    learned = Recorder(), Recorder()
    store = SqliteConnector().store(str(tmp_path / "s.db"), read_only=False)
    stored = Join(config, store.tables)
    events = random_events(rng, 4000)
    while events:
        cut = rng.randrange(1, 300)
        batch, events = events[:cut], events[cut:]
        stored.prefetch([event.id for event in batch if event.id is not None])
        for event in batch:
            assert emissions(stored, event, learned[1]) == emissions(plain, event, learned[0])
        store.commit(Change({}, b"{}", {}, {}, (), ()))
        if rng.random() < 0.2:  # as after a crash
            state = msgspec.json.decode(msgspec.json.encode(stored.state), type=type(stored.state))
            store.close()
            store = SqliteConnector().store(str(tmp_path / "s.db"), read_only=False)
            stored = Join(config, store.tables, state)
        assert stored.pending == plain.pending
        assert stored.state == plain.state
    assert learned[0].learned == learned[1].learned
    counts = msgspec.structs.asdict(plain.counts)
    absent = {"implied", "contradicted"} if config.unlabelled == "drop" else {"expired"}
    assert {name for name, count in counts.items() if not count} <= absent, counts
    assert stored.close() == plain.close()
    store.close()


def test_what_expires_at_once_goes_to_the_store_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is due at one event's time, no more of it is held than a portion, beside the batch itself."""
    portion, batch, count = 500, 250, 2500
    monkeypatch.setattr("streamcal.join.join.PORTION", portion)
    held: list[int] = []
    changes = StoredTable.changes

    def noted(table: StoredTable[Pending]) -> Any:
        held.append(len(set(table.entries) | set(table._loaded)))
        return changes(table)

    monkeypatch.setattr(StoredTable, "changes", noted)
    store = SqliteConnector().store(str(tmp_path / "s.db"), read_only=False)
    join, recorder = Join(JoinConfig(label_ttl=1000.0), store.tables), Recorder()

    def take(*events: Event) -> list[str]:
        join.prefetch([event.id for event in events if event.id is not None])
        out = [each for event in events for each in emissions(join, event, recorder)]
        store.commit(Change({}, b"{}", {}, {}, (), ()))
        return [each.reason.split(":")[0] for each in out if isinstance(each, Rejected)]

    for start in range(0, count, batch):
        which = range(start, start + batch)
        take(*(PredictionEvent(f"p{i}", 0.3, 0.0) for i in which))
        take(*(LabelEvent(f"e{i}", 1, 0.0) for i in which))
    assert join.pending == len(store.tables.early) == count
    late = [LabelEvent(f"p{i}", 1, 1500.0) for i in range(0, count, 100)]
    reasons = take(PredictionEvent("now", 0.3, 1500.0), PredictionEvent("p7", 0.3, 1500.0), *late)
    assert reasons.count("unmatched label") == count
    assert reasons[count:] == ["duplicate prediction"] + ["late label"] * len(late)
    assert join.counts.expired == len(store.tables.settled) == count
    assert join.pending == 1
    assert take(PredictionEvent("later", 0.3, 3000.0), PredictionEvent("p7", 0.3, 3000.0)) == []
    assert join.pending == 2
    assert len(store.tables.settled) == 1  # how "now" has ended
    assert max(held) <= portion + batch
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_table_in_memory_knows_its_oldest_entries(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("streamcal.join.tables._LISTED", 5)
    rng, table, wanted = random.Random(seed), MemoryTable[Settled](), dict[str, Settled]()
    for step in range(300):
        id_, count = f"i{rng.randrange(60)}", rng.randrange(9)
        match rng.randrange(6):
            case 0 | 1 | 2 if id_ not in wanted:
                table.entries[id_] = wanted[id_] = Settled(float(step), 0)
            case 3 if id_ in wanted:
                del wanted[id_], table.entries[id_]
            case 4 if count <= len(wanted):
                assert table.pop_first(count) == list(wanted)[:count]
                wanted = dict(list(wanted.items())[count:])
            case 5 if wanted:
                assert table.pop_oldest() == table_first(wanted)
                del wanted[table_first(wanted)[0]]
        assert table.first(count) == list(wanted.items())[:count]
        assert table.oldest() == (table_first(wanted) if wanted else None)


def table_first(entries: dict[str, Settled]) -> tuple[str, Settled]:
    return next(iter(entries.items()))
