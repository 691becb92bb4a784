"""Tables as columns: the same entries in the same order as in dicts, whatever is put and taken out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.join import dense_tables
from streamcal.join.dense_tables import DenseTables
from streamcal.join.id_slots import IdSlots
from streamcal.join.tables import MemoryTables, Pending, Settled

MOVES = st.tuples(st.sampled_from("pppsseof"), st.integers(0, 30))


@pytest.fixture(autouse=True)
def small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rings be full soon: rows are numbered anew every few moves."""
    monkeypatch.setattr(dense_tables, "_ROWS", 4)
    monkeypatch.setattr(dense_tables, "_BYTES", 16)
    monkeypatch.setattr(dense_tables, "_MORE", 4)
    monkeypatch.setattr(dense_tables, "_AT_ONCE", 3)
    monkeypatch.setattr(dense_tables, "_READ_AHEAD", 2)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(MOVES, max_size=6), max_size=12))
def test_entries_in_order(parts: list[list[tuple[str, int]]]) -> None:
    plain, dense = MemoryTables(), DenseTables(MemoryTables())
    for moves in parts:
        dense.prefetch([f"id{number}" * (1 + number % 5) for _, number in moves])
        for kind, number in moves:
            id_ = f"id{number}" * (1 + number % 5)
            for tables in (plain, dense):
                known = id_ in tables.pending.entries or id_ in tables.settled.entries
                if kind == "p" and not known:
                    key = "k" if number % 3 == 0 else None
                    tables.pending.entries[id_] = Pending(
                        None, 0.5, number / 30, "target", key, float(number), 7
                    )
                elif kind == "s" and id_ in tables.pending.entries:
                    del tables.pending.entries[id_]
                    tables.settled.entries[id_] = Settled(float(number), number % 2)
                elif kind == "e" and not known:
                    tables.settled.entries[id_] = Settled(None, None)
                elif kind == "o" and tables.pending.oldest() is not None:
                    tables.settled.entries[tables.pending.pop_oldest()[0]] = Settled(None, None)
                elif kind == "f" and tables.settled.oldest() is not None:
                    tables.settled.pop_oldest()
        for mine, wanted in ((dense.pending, plain.pending), (dense.settled, plain.settled)):
            assert len(mine) == len(wanted)
            assert mine.first(100) == wanted.first(100)  # type: ignore[comparison-overlap]
        dense.settle()
        assert dense.pending.first(100) == plain.pending.first(100)
        assert dense.settled.first(100) == plain.settled.first(100)


def test_ids_with_the_same_hash_keep_their_rows() -> None:
    slots = IdSlots(8)
    hashes = np.full(5, 7 << 32 | 3, np.uint64)
    for row in range(1, 6):  # one at a time: of those added together no two are alike
        slots.add(hashes[:1], np.array([row]), 1)
    wanted = np.array([4, 2, 5, 1, 3])
    found = slots.find(hashes, 1, lambda numbers, rows: wanted[numbers] == rows)
    assert found.tolist() == wanted.tolist()
    assert slots.find(hashes, 4, lambda numbers, rows: wanted[numbers] == rows).tolist() == [4, 0, 5, 0, 0]
