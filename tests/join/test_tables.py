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
from streamcal_connectors.sqlite.store import SqliteConnector
from streamcal_connectors.sqlite.tables import IdIndex

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.engine.emissions import Rejected
from streamcal.events import Event
from streamcal.join.entries import Early, Entry, Pending, Settled
from streamcal.join.id_table_c import EARLY, ENDED, WAITING, IdTable
from streamcal.join.join_c import Join
from streamcal.join.tables import Changes, StoredTables, Tables
from streamcal.run.ports import Change
from tests.join.recorder import EVENTS, Recorder, emissions
from tests.nightly import one_in


class ListRows:
    """Rows of a table in a list: what a store has to do, by the letter."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, object]] = []

    def after(self, seq: int, limit: int) -> list:
        return [row for row in self.rows if row[0] > seq][: min(limit, 2)]

    def extent(self) -> tuple[int, int]:
        return len(self.rows), self.rows[-1][0] if self.rows else 0

    def write(self, changes: Changes) -> None:
        first, added, removed, replaced = changes
        assert set(removed) <= {row[:2] for row in self.rows}
        assert replaced.keys() <= {seq for seq, *_ in self.rows}
        self.rows = [
            (seq, id_, replaced.get(seq, entry)) for seq, id_, entry in self.rows if (seq, id_) not in removed
        ]
        self.rows += [(seq, id_, entry) for seq, (id_, entry) in enumerate(added.items(), first)]
        assert len({id_ for _, id_, _ in self.rows}) == len(self.rows)


class ListTables(StoredTables):
    def __init__(self) -> None:
        self.lists = ListRows(), ListRows(), ListRows()
        super().__init__(self.lists)
        self.asked: set[str] = set()

    def prefetch(self, ids) -> None:
        self.asked = set(ids)
        for queue, rows in enumerate(self.lists):
            self.load(queue, [row for row in rows.rows if row[1] in self.asked])

    def flush(self) -> None:
        self.commit()
        self.prefetch(self.asked)

    def commit(self) -> None:
        for queue, (rows, changes) in enumerate(zip(self.lists, self.changes(), strict=True)):
            rows.write(changes)
            assert len(rows.rows) == self.rows.count(queue)


OPTIONS = st.fixed_dictionaries({}, optional={"label_delay_limit": st.sampled_from([4.0, 12.0])}).map(
    lambda options: options | {"missing_labels": "negative" if "label_delay_limit" in options else "drop"}
)


@given(EVENTS, st.lists(st.integers(1, 7), min_size=1), st.integers(1, 5), st.integers(1, 4), OPTIONS)
def test_stored_tables_join_as_those_in_memory(
    events: list[Event], cuts: list[int], bound: int, portion: int, options: dict[str, Any]
) -> None:
    with patch.multiple("streamcal.join.join_c", PORTION=portion, PER_EVENT=0):
        join_both(events, cuts, JoinConfig(label_ttl=10.0, max_pending=bound, **options))


def join_both(events: list[Event], cuts: list[int], config: JoinConfig) -> None:
    plain_tables, tables = Tables(), ListTables()
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
    for queue, rows in enumerate(tables.lists):
        assert [(id_, entry) for _, id_, entry in rows.rows] == list(plain_tables.entries(queue).items())
    assert stored.close() == plain.close()


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
        (3, {"missing_labels": "negative", "label_delay_limit": 40.0}),
        (4, {"missing_labels": "negative", "label_delay_limit": 40.0}),
    ],
)
def test_sqlite_tables_join_as_those_in_memory(
    tmp_path: Path, seed: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("streamcal.join.join_c.PORTION", 20 + 100 * seed)
    monkeypatch.setattr("streamcal.join.join_c.PER_EVENT", 0)
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
    absent = {"implied", "contradicted"} if config.missing_labels == "drop" else {"expired"}
    assert {name for name, count in counts.items() if not count} <= absent, counts
    assert stored.close() == plain.close()
    store.close()


def test_what_expires_at_once_goes_to_the_store_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is due at one event's time, no more of it is held than a portion, beside the batch itself."""
    portion, batch, count = 500, 250, 2500
    monkeypatch.setattr("streamcal.join.join_c.PORTION", portion)
    held: list[int] = []
    changes = StoredTables.changes

    def noted(tables: StoredTables) -> Any:
        held.append(len(tables.rows))
        return changes(tables)

    monkeypatch.setattr(StoredTables, "changes", noted)
    monkeypatch.setattr("streamcal.join.tables._READ_AHEAD", 16)
    store = SqliteConnector().store(str(tmp_path / "s.db"), read_only=False)
    join, recorder = Join(JoinConfig(label_ttl=1000.0), store.tables), Recorder()

    def take(*events: Event, until: float = 0.0) -> list[str]:
        join.prefetch([event.id for event in events if event.id is not None])
        out: list[Any] = list(join.move_to(until))
        out += [each for event in events for each in emissions(join, event, recorder)]
        store.commit(Change({}, b"{}", {}, {}, (), ()))
        return [each.code for each in out if isinstance(each, Rejected)]

    for start in range(0, count, batch):
        which = range(start, start + batch)
        take(*(PredictionEvent(f"p{i}", 0.3, 0.0) for i in which))
        take(*(LabelEvent(f"e{i}", 1, 0.0) for i in which))
    assert join.pending == store.tables.rows.count(EARLY) == count
    late = [LabelEvent(f"p{i}", 1, 1500.0) for i in range(0, count, 100)]
    reasons = take(
        PredictionEvent("now", 0.3, 1500.0), PredictionEvent("p7", 0.3, 1500.0), *late, until=1500.0
    )
    assert reasons.count("unmatched_label") == count
    assert reasons[count:] == ["duplicate_prediction"] + ["late_label"] * len(late)
    assert join.counts.expired == store.tables.rows.count(ENDED) == count
    assert join.pending == 1
    later = PredictionEvent("later", 0.3, 3000.0), PredictionEvent("p7", 0.3, 3000.0)
    assert take(*later, until=3000.0) == []
    assert join.pending == 2
    assert store.tables.rows.count(ENDED) == 1  # how "now" has ended
    assert max(held) <= portion + batch + 3 * 64
    store.close()


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_a_table_is_three_dicts_in_order(seed: int) -> None:
    rng, rows = random.Random(seed), IdTable()
    wanted: list[dict[str, Entry]] = [{}, {}, {}]
    for step in range(3000):
        id_ = (
            "é" * rng.choice([0, 0, 1, 9])
            + f"i{rng.randrange(400 if step < 2000 else 40)}"
            + "x" * rng.randrange(2)
        )
        row, known = rows.known(id_), [each for each in wanted if id_ in each]
        assert (row > 0) == bool(known)
        if row:
            assert rows.id_of(row) == id_
            assert rows.entry(row) == known[0][id_]
            if rng.random() < 0.5 + 0.4 * (step >= 2000):
                rows.remove(row)
                del known[0][id_]
        else:
            score, key = rng.random(), rng.choice([None, "k", "l"])
            pending = Pending(
                float(step), score, score / 2, rng.choice(["source", "target"]), key, None, step
            )
            kinds: list[Entry] = [
                pending,
                msgspec.structs.replace(pending, told=(1, None), weight=2.0),
                Settled(None, rng.choice([0, 1, None])),
                Settled(float(step), 1, pending),
                Early(None, LabelEvent(id_, 1, 3.0)),
            ]
            entry = rng.choice(kinds)
            rows.put(id_, entry)
            queue = WAITING if isinstance(entry, Pending) else EARLY if isinstance(entry, Early) else ENDED
            wanted[queue][id_] = entry
        if not step % 100:
            for queue, each in enumerate(wanted):
                assert rows.entries(queue) == list(each.items())
                assert rows.count(queue) == len(each)
                assert rows.oldest(queue) == (rows.known(next(iter(each))) if each else 0)
