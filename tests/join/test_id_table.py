"""The join's rows by id, and what a store has of them: a join that resumes equals one that never stopped."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamcal_connectors.sqlite.store import SqliteConnector

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events import Event
from streamcal.join.entries import Early, Entry, Pack, Pending, Settled
from streamcal.join.id_table_c import EARLY, ENDED, PACK, WAITING, IdTable
from streamcal.join.join_c import Join, JoinState
from streamcal.run.ports import Change
from tests.join.recorder import EVENTS, Recorder, emissions, stored_entries
from tests.nightly import one_in


def again(state: JoinState) -> JoinState:
    """Return a state as it comes out of a store."""
    return msgspec.json.decode(msgspec.json.encode(state), type=JoinState)


OPTIONS = st.sampled_from([{}, *({"label_delay_limit": limit} for limit in (4.0, 12.0))]).map(
    lambda options: options | {"missing_labels": "negative" if options else "drop"}
)


@given(EVENTS, st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1), st.integers(1, 5), OPTIONS)
def test_a_join_resumes_from_its_packs(
    events: list[Event], cuts: list[tuple[int, bool]], bound: int, options: dict[str, Any]
) -> None:
    config = JoinConfig(label_ttl=10.0, max_pending=bound, **options)
    plain, stored = Join(config), Join(config)
    packs: dict[int, Pack] = {}
    learned = Recorder(), Recorder()
    start = 0
    for size, stops in cuts * (len(events) // len(cuts) + 1):
        batch = events[start : start + size]
        start += size
        for event in batch:
            assert emissions(stored, event, learned[1]) == emissions(plain, event, learned[0])
        write(packs, stored)
        for queue in (WAITING, ENDED, EARLY):
            assert in_packs(packs, queue) == plain.rows.entries(queue)
        if stops:
            stored = Join(config, again(stored.state))
            stored.rows.load(packs.values())
    assert learned[0].learned == learned[1].learned
    assert stored.state == plain.state
    assert stored.close() == plain.close()


def write(packs: dict[int, Pack], join: Join) -> None:
    """Write the changes of a join, as a store has to."""
    removed, added = join.rows.changes()
    for number in removed:
        del packs[number]
    for number, entries in added:
        assert number not in packs
        assert 0 < len(entries) <= PACK
        assert len({type(entry) for _, entry in entries}) == 1
        packs[number] = number, entries
    for number in sorted(packs):
        packs[number] = packs.pop(number)


def in_packs(packs: dict[int, Pack], queue: int) -> list[tuple[str, Entry]]:
    kind = {WAITING: Pending, ENDED: Settled, EARLY: Early}[queue]
    return [pair for _, entries in packs.values() for pair in entries if isinstance(pair[1], kind)]


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
    [(0, {}), (1, {}), (2, {"missing_labels": "negative", "label_delay_limit": 40.0})],
)
def test_a_join_resumes_from_sqlite(tmp_path: Path, seed: int, options: dict[str, Any]) -> None:
    rng = random.Random(seed)
    config = JoinConfig(label_ttl=700.0, max_pending=rng.choice([90, 10_000]), **options)
    plain, stored = Join(config), Join(config)
    learned = Recorder(), Recorder()
    store = SqliteConnector().store(str(tmp_path / "s.db"), read_only=False)
    events = random_events(rng, 4000)
    while events:
        cut = rng.randrange(1, 300)
        batch, events = events[:cut], events[cut:]
        for event in batch:
            assert emissions(stored, event, learned[1]) == emissions(plain, event, learned[0])
        removed, packs = stored.rows.changes()
        store.commit(Change({}, b"{}", {}, {}, (), (), removed=removed, packs=packs))
        if rng.random() < 0.2:  # as after a crash
            store.close()
            store = SqliteConnector().store(str(tmp_path / "s.db"), read_only=False)
            stored = Join(config, again(stored.state))
            stored.rows.load(store.load().packs)
        assert stored.state == plain.state
    assert learned[0].learned == learned[1].learned
    counts = msgspec.structs.asdict(plain.counts)
    absent = {"implied", "contradicted"} if config.missing_labels == "drop" else {"expired"}
    assert {name for name, count in counts.items() if not count} <= absent, counts
    entries = [pair for queue in (EARLY, WAITING, ENDED) for pair in plain.rows.entries(queue)]
    assert stored_entries(store.load()) == entries
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
