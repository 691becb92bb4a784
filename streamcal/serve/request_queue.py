"""Queue of requests: their events wait here, and the run's thread takes all that wait.

Whatever came while a micro-batch was processed is the next one, so that many small requests share a commit.
Requests are answered when the journal of the store has them; a run that resumes takes them from there again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from threading import Condition
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from streamcal.events import Event, LabelEvent, Origin
from streamcal.events.blocks import FEWEST, Block
from streamcal.events.codec import JsonDecoder
from streamcal.events.fields import Malformed
from streamcal.run.config import RunConfig
from streamcal.run.outcome import Outcome
from streamcal.run.ports import REQUESTS, Position, Positions
from streamcal.serve.http_problems import RefusedError
from streamcal.serve.served_pipeline import Result, ServedPipeline

MOST_WAITING: Final = 65_536
"""Most events that may wait; a request beyond it is refused, and told to come again."""

STARTING: Final = "the server is starting: it reads its store and its calibration"
"""Reason to refuse a request that comes too soon."""

ANSWER_SECONDS: Final = 30.0
"""Time limit for events to be taken, and of an answer to a question, in seconds."""

PATIENCE_SECONDS: Final = 5.0
"""Time that a micro-batch may take before further requests are told at once to come again, in seconds."""

_MOST_BYTES: Final = 32 << 20
_PART: Final = 500  # events of a large request that are taken at once, so that small ones wait less

Kind = Literal["predictions", "labels"]
T = TypeVar("T")


class _Group(msgspec.Struct, array_like=True):
    """The events of one request."""

    kind: Kind
    lines: list[bytes]


class _Ticket(NamedTuple):
    """A request that waits."""

    group: _Group
    waiting: asyncio.Future[list[Result]]


class _Question(NamedTuple):
    """A question that waits, to be answered by the run's thread."""

    ask: Callable[[], Any]
    waiting: asyncio.Future[Any]


class _Batch:
    """The events of one micro-batch; see `streamcal.run.ports.Batch`."""

    partition = ""

    def __init__(self, first: int, groups: Sequence[_Group], decoders: Mapping[Kind, JsonDecoder]) -> None:
        self._first = first
        self._raws = [line for group in groups for line in group.lines]
        parts = [_decoded(group, decoders[group.kind]) for group in groups]
        are_columns = any(isinstance(part, Block) for part in parts)
        self.events: Sequence[Event | Malformed] = (
            Block.joined(parts) if are_columns else list(chain.from_iterable(parts))
        )

    def origin(self, index: int) -> Origin:
        return Origin(REQUESTS, self._first + index + 1, self._raws[index])

    def position(self, count: int) -> Position:
        return self._first + count


def _decoded(group: _Group, decoder: JsonDecoder) -> Sequence[Event | Malformed]:
    """Return the events of a request: columns, if they are many and all are plain."""
    found: Sequence[Event | Malformed] | None = None
    if len(group.lines) >= FEWEST and all(group.lines):
        found = decoder.decode_lines(b"\n".join(group.lines))
    if found is None:
        found = [decoder.decode(line) for line in group.lines]
    if isinstance(found, Block) and (np.isnan(found.scores) == (group.kind == "labels")).all():
        return found
    return [_of_kind(event, group.kind) for event in found]


def _of_kind(event: Event | Malformed, kind: Kind) -> Event | Malformed:
    if kind == "predictions" and type(event) is LabelEvent:
        return Malformed("wrong_path", {"taken": "predictions", "sent": "labels"})
    if kind == "labels" and type(event) is not LabelEvent and not isinstance(event, Malformed):
        return Malformed("wrong_path", {"taken": "labels", "sent": "predictions"})
    return event


class RequestQueue:
    """The requests that wait: an event loop submits them, the run's thread takes and answers them.

    It is the source of that run; see `streamcal.run.ports.PushSource`.
    """

    name = REQUESTS
    endless = True
    ended = False

    def __init__(self, options: RunConfig, pipeline: ServedPipeline) -> None:
        self._decoders: dict[Kind, JsonDecoder] = {
            "predictions": JsonDecoder("target", options.columns.of("events")),
            "labels": JsonDecoder("target", options.columns.of("labels")),
        }
        self._next = 0
        self._pipeline = pipeline
        self._changed = Condition()
        self._waiting: deque[_Ticket] = deque()
        self._asked: list[_Question] = []
        self._events = self._bytes = 0  # of requests that were not answered
        self._taken: list[_Ticket] = []
        self._taken_at = 0.0
        self.ready = False
        """Whether requests are taken: the store was read, and the source of calibration learned."""
        self._closed = False

    # Requests

    async def submit(self, kind: Kind, lines: list[bytes]) -> list[Result]:
        """Return the result of each event, once the events are taken and kept, many of them in parts.

        Raises
        ------
        RefusedError
            if it is not ready, or too many wait, or those before these take long. Events that are taken are
            answered, however long it takes.
        """
        size = sum(map(len, lines))
        with self._changed:
            self._check_open()
            if self._events and (
                self._events + len(lines) > MOST_WAITING or self._bytes + size > _MOST_BYTES
            ):
                raise _busy(f"{self._events:,} events wait to be answered, at most {MOST_WAITING:,} may")
            if self._taken and time.monotonic() > self._taken_at + PATIENCE_SECONDS:
                raise _busy(f"the events before these take more than {PATIENCE_SECONDS:g} seconds")
            self._events += len(lines)
            self._bytes += size
        try:
            results = await self._submit(kind, lines[:_PART], ANSWER_SECONDS)
            for start in range(_PART, len(lines), _PART):
                results += await self._submit(kind, lines[start : start + _PART], None)
            return results
        finally:
            with self._changed:
                self._events -= len(lines)
                self._bytes -= size

    async def _submit(self, kind: Kind, lines: list[bytes], seconds: float | None) -> list[Result]:
        ticket = _Ticket(_Group(kind, lines), asyncio.get_running_loop().create_future())
        with self._changed:
            self._check_open()
            self._waiting.append(ticket)
            self._changed.notify()
        await asyncio.wait([ticket.waiting], timeout=seconds)
        if not ticket.waiting.done():
            with self._changed:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                    raise _busy(f"the events before these took more than {ANSWER_SECONDS:g} seconds")
        return await ticket.waiting

    async def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question, which the run's thread is asked between two micro-batches.

        Raises
        ------
        RefusedError
            if it is not ready, or there is no answer in time.
        """
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._check_open()
            self._asked.append(_Question(question, waiting))
            self._changed.notify()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await waiting
        except TimeoutError:
            raise RefusedError(
                503, f"no answer within {ANSWER_SECONDS:g} seconds: ask again", retry_after=1
            ) from None

    def close(self) -> None:
        """Take no more requests; those that wait are answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def fail(self, detail: str) -> None:
        """Answer those that wait that it has failed."""
        self.close()
        error = RefusedError(503, detail, retry_after=1)
        tickets = [each.waiting for each in (*self._taken, *self._waiting)]
        _answer([(each, error) for each in (*tickets, *(asked.waiting for asked in self._asked))])

    def done(self) -> bool:
        """Whether it was closed, and nothing waits."""
        return self._closed and not self._waiting

    def _check_open(self) -> None:
        if self._closed:
            raise RefusedError(503, "the server is stopping: try another, or again", retry_after=1)
        if not self.ready:
            raise RefusedError(503, STARTING, retry_after=1)

    # The source of the run

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Number of times that an unknown field was ignored, by its name."""
        one, other = (decoder.unknown_fields for decoder in self._decoders.values())
        return one + other

    def seek(self, positions: Positions) -> Positions:
        """Go to a position: how many events came before."""
        self._next = int(positions.get("", 0))
        return {"": self._next}

    def limit(self, positions: Positions | None) -> None:
        """Do nothing: the journal has what is read again."""

    def taken(self) -> bytes:
        """Return the requests of the micro-batch in hand."""
        return msgspec.msgpack.encode([ticket.group for ticket in self._taken])

    def again(self, events: bytes) -> _Batch:
        """Return the events of requests that were answered before."""
        return self._batch(msgspec.msgpack.decode(events, type=list[_Group]))

    def lag(self) -> Mapping[str, float]:
        """Return 0: the order of requests is that in which they are taken."""
        return {"": 0.0}

    def _batch(self, groups: Sequence[_Group]) -> _Batch:
        made = _Batch(self._next, groups, self._decoders)
        self._next += len(made.events)
        return made

    def poll(self, max_events: int, timeout: float) -> Sequence[_Batch]:
        """Return the events of the requests that wait, as one batch."""
        self.ready = True
        with self._changed:
            if not (self._waiting or self._asked or self._closed):
                self._changed.wait(timeout)
            asked, self._asked = self._asked, []
            taken, count = [], 0
            while self._waiting and (not count or count + len(self._waiting[0].group.lines) <= max_events):
                ticket = self._waiting.popleft()
                taken.append(ticket)
                count += len(ticket.group.lines)
        _answer([(each.waiting, _found(each.ask)) for each in asked])
        if not taken:
            return ()
        self._taken, self._taken_at = taken, time.monotonic()
        groups = [ticket.group for ticket in taken]
        return [self._batch(groups)]

    def answer(self, outcome: Outcome, seconds: float) -> None:  # noqa: ARG002  # what the runner calls
        """Answer the requests of a micro-batch, which is kept or committed now."""
        results = iter(self._pipeline.results)
        _answer([(each.waiting, list(islice(results, len(each.group.lines)))) for each in self._taken])
        self._taken = []


def _busy(why: str) -> RefusedError:
    return RefusedError(429, f"{why}: send the same request again", retry_after=1)


def _found(question: Callable[[], object]) -> object:
    """Return the answer to a question, or the exception that it raised."""
    try:
        return question()
    except Exception as error:
        return error


def _answer(answers: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    """Wake those that wait, in their event loop: each with its answer, or the exception in its place."""

    def wake() -> None:
        for waiting, found in answers:
            if waiting.done():  # nobody waits any more
                continue
            if isinstance(found, Exception):
                waiting.set_exception(found)
            else:
                waiting.set_result(found)

    if answers and not (loop := answers[0][0].get_loop()).is_closed():
        loop.call_soon_threadsafe(wake)
