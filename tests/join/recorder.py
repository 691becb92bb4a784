"""A learner that records what the join gives it, and the events to give the join."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from hypothesis import strategies as st

from streamcal import LabelEvent, LabelledEvent, PredictionEvent, Recalibrated
from streamcal.engine.emissions import Emission
from streamcal.engine.stepping_c import step
from streamcal.events import Event
from streamcal.join.entries import Pending
from streamcal.join.id_table_c import COMES, EARLY, ENDED, EXPIRED, LABELLED, WAITING, WAITS, IdTable
from streamcal.join.join import Join
from streamcal.join.outcomes import Contradicted, EarlyPositive, Joined
from streamcal.join.packs import Kind, Pack, PackRows
from streamcal.run.ports import Checkpoint

KINDS: Final[tuple[Kind, ...]] = ("pending", "settled", "early")


class Early(NamedTuple):
    """A label that waits for its prediction."""

    since: float | None
    event: LabelEvent


class Settled(NamedTuple):
    """A prediction that has ended, with its label, and what is left of it."""

    since: float | None
    label: int | None
    answered: Pending | None = None


Entry: TypeAlias = Pending | Early | Settled


def entry_of(table: IdTable, row: int) -> Entry:
    """Return a row as an object."""
    if table.is_waiting(row):
        return table.prediction(table.id_of(row))
    since, left = table.since(row), table.object_of(row)
    return Early(since, left) if table.is_early(row) else Settled(since, table.label_of(row), left)


def stored_entries(checkpoint: Checkpoint) -> list[tuple[str, Entry]]:
    """Return the join's entries in a store, those of each kind in their order."""
    table = IdTable()
    table.load(checkpoint.packs)
    return [pair for queue in (EARLY, WAITING, ENDED) for pair in entries_of(table, queue)]


def entries_of(table: IdTable, queue: int) -> list[tuple[str, Entry]]:
    """Return a queue in order, with the ids."""
    found = list[tuple[str, Entry]]()
    for pack in table.packs():
        if pack.kind == KINDS[queue]:
            rows = msgspec.msgpack.decode(pack.data, type=PackRows)
            sizes = np.frombuffer(rows.columns[0], np.uint16)
            for end, size in zip(sizes.cumsum().tolist(), sizes.tolist(), strict=True):
                id_ = rows.text[end - size : end].decode()
                found.append((id_, entry_of(table, table.known(id_))))
    return found


def put(table: Any, number: int, id_: str, entry: Entry) -> None:
    """Put an entry at the end of its queue, as a pack of this number."""
    rows, real, more = PackRows([], id_.encode()), [entry.since], list[bytes]()
    queue, state, held = EARLY, COMES, None
    if isinstance(entry, Early):
        rows.labels = {0: entry.event}
    elif isinstance(entry, Settled):
        queue, state, held = ENDED, EXPIRED if entry.label is None else LABELLED + entry.label, entry.answered
    else:
        queue, state, held, rows.keys = WAITING, WAITS, entry, [entry.key]
        real += [entry.score, entry.probability, entry.time]
        more = [np.array([entry.prediction_index]).tobytes(), bytes([entry.domain == "target"])]
    rows.predictions = {} if held is None else {0: held}
    head = [np.array([value], np.uint16).tobytes() for value in (len(rows.text), state)]
    rows.columns = [*head, np.array(real, np.float64).tobytes(), *more]
    table.load([Pack(number, KINDS[queue], entry.since, rows.encoded(), b"\x01")])


EVENTS = st.lists(
    st.one_of(
        st.builds(PredictionEvent, st.sampled_from("abcdef"), st.just(0.3), st.floats(0, 30)),
        st.builds(LabelEvent, st.sampled_from("abcdef"), st.integers(0, 1), st.floats(0, 30)),
        st.builds(
            LabelledEvent, st.just(0.3), st.integers(0, 1), st.sampled_from("abcdef"), st.floats(0, 30)
        ),
    ),
    max_size=60,
)


class Recorder:
    """A learner that answers ½ and remembers what it learned."""

    def __init__(self) -> None:
        self.learned: list[Joined | EarlyPositive] = []
        self.contradicted: list[Contradicted] = []
        self.seen = 3

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, None, tuple[Emission, ...]]:
        return Recalibrated(event.id, event.score, 0.5, 0, (1.0, 1.0)), self.seen, None, ()

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        self.learned.append(joined)
        return ()

    def observe_early(self, positive: EarlyPositive) -> tuple[Emission, ...]:
        self.learned.append(positive)
        return ()

    def contradict(self, contradicted: Contradicted) -> None:
        self.contradicted.append(contradicted)


def emissions(join: Join, event: Event, recorder: Recorder) -> tuple[Emission, ...]:
    """What comes out of one event, but for the labels that were joined: the recorder has those."""
    outcomes = step(event, join, lambda _: recorder)
    return tuple(outcome for outcome in outcomes if not isinstance(outcome, Joined))
