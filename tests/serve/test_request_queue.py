"""How often the state is committed, and a kill between two commits, change nothing of it."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal.events import codec
from streamcal.run import journal, pipeline
from streamcal.run.config import RunConfig
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.runner import Inputs, Runner
from streamcal.serve import request_queue
from streamcal.serve.http_problems import RefusedError
from streamcal.serve.request_queue import Kind, RequestQueue
from streamcal.serve.served_pipeline import Result, ServedPipeline
from tests.join.recorder import stored_entries
from tests.nightly import one_in

pytestmark = pytest.mark.slow

OPTIONS = RunConfig.model_validate(
    {"join": {"label_ttl": 40.0, "max_pending": 60}, "recalibrator": {"mode": "target"}}
)
Requests = list[tuple[Kind, list[bytes]]]


def requests(count: int, seed: int) -> list[Requests]:
    """Return micro-batches: new ids, known ones, labels that are early, late, twice, or of another class."""
    rng = random.Random(seed)
    made: list[Requests] = []
    known = 0
    for moment in range(count):
        batch: Requests = []
        for _ in range(rng.randrange(1, 5)):
            kind: Kind = rng.choice(("predictions", "labels"))
            lines = []
            for _ in range(rng.randrange(1, 5)):
                new = kind == "predictions" and rng.random() < 0.8
                known += new
                id_ = known if new else rng.randrange(max(known - 100, 0), known + 5)
                value = f'"score":{id_ % 97 / 97}' if kind == "predictions" else f'"label":{rng.randrange(2)}'
                lines.append(f'{{"id":"{id_}",{value},"time":{1e9 + moment}}}'.encode())
            batch.append((kind, lines))
        made.append(batch)
    return made


def serve(path: Path, batches: list[Requests], *, kill: bool = False) -> list[Result]:
    """Serve micro-batches as they are; return the results. A killed server leaves all to the journal."""
    results: list[Result] = []
    with closing(SqliteStore(path)) as store:
        served = ServedPipeline(OPTIONS)
        queue = RequestQueue(OPTIONS, served)
        left = iter(batches)
        loop = asyncio.new_event_loop()
        waiting: list[asyncio.Task[list[Result]]] = []

        def feed() -> None:
            queue.ready = True
            batch = next(left, None)
            waiting[:] = [loop.create_task(queue.submit(kind, lines)) for kind, lines in batch or ()]
            loop.run_until_complete(asyncio.sleep(0))  # until all are in the queue
            if batch is None:
                if kill:
                    raise InterruptedError
                queue.close()

        def after(*args: Any) -> None:
            queue.answer(*args)
            for found in loop.run_until_complete(asyncio.gather(*waiting)):
                results.extend(found)
            feed()

        feed()
        runner = Runner(
            served,
            Inputs([], [queue]),
            Outputs(NullSink()),
            store,
            clock=time.monotonic,
            stop=queue.done,
            after=after,
            linger=0.0,
        )
        try:
            runner.run()
        except InterruptedError:
            assert kill
        finally:
            loop.close()
    return results


def contents(path: Path) -> Any:
    with closing(SqliteStore(path, read_only=True)) as store:
        checkpoint = store.load()
        entries = repr(stored_entries(checkpoint))
        rejects = [(row.line, row.reason) for row in store.rejects()]
        return dict(checkpoint.engines), checkpoint.run, checkpoint.positions, entries, rejects


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_commits_and_kills_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    batches = requests(150, seed)
    monkeypatch.setattr(journal, "_MOST_EVENTS", -1)  # a commit each
    often = serve(tmp_path / "often.db", batches)
    assert len({type(each) for each in often}) == 3  # of every kind
    monkeypatch.setattr(journal, "_MOST_EVENTS", 1 << 30)
    monkeypatch.setattr(journal, "_SECONDS", 1e9)
    assert serve(tmp_path / "seldom.db", batches) == often
    assert contents(tmp_path / "seldom.db") == contents(tmp_path / "often.db")
    killed = tmp_path / "killed.db"
    answered = serve(killed, batches[:60], kill=True)
    answered += serve(killed, batches[60:])
    assert answered == often
    assert contents(killed) == contents(tmp_path / "often.db")


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_columns_give_what_lines_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    batches = requests(150, seed)
    strange = [
        b"no JSON",
        b'{"id":"x","score":0.5,"label":1,"time":1e9}',
        b'{"id":"y","score":0.25,"more":1}',
    ]
    for number in range(0, 150, 5):
        batches[number].append((("labels", "predictions")[number % 2], strange[: number % 4]))
    batches = [[(kind, lines) for kind, lines in batch if lines] for batch in batches]
    lines = serve(tmp_path / "lines.db", batches)
    for module in (codec, request_queue):
        monkeypatch.setattr(module, "FEWEST", 1)
    monkeypatch.setattr(pipeline, "_FEW", 0)
    assert serve(tmp_path / "columns.db", batches) == lines
    assert contents(tmp_path / "columns.db") == contents(tmp_path / "lines.db")


def test_what_was_taken_is_answered_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is refused, is not taken later, and so may be sent again."""
    monkeypatch.setattr(request_queue, "ANSWER_SECONDS", 0.001)

    async def take(store: SqliteStore) -> None:
        queue = RequestQueue(OPTIONS, ServedPipeline(OPTIONS))
        queue.seek({})
        queue.ready = True
        taken = asyncio.create_task(queue.submit("predictions", [b'{"id":"a","score":0.5}']))
        await asyncio.sleep(0)
        assert queue.poll(1000, 0.0)
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedError, match="send the same request again") as refused:
            await queue.submit("predictions", [b'{"id":"b","score":0.5}'])
        assert refused.value.problem.status == 429
        assert not queue.poll(1000, 0.0)
        queue.fail("the store is full")
        with pytest.raises(RefusedError, match="full"):
            await taken

    with closing(SqliteStore(tmp_path / "store.db")) as store:
        asyncio.run(take(store))


def test_requests_that_wait_share_a_micro_batch(tmp_path: Path) -> None:
    async def take(store: SqliteStore) -> None:
        queue = RequestQueue(OPTIONS, ServedPipeline(OPTIONS))
        queue.seek({})
        queue.ready = True
        waiting = [
            asyncio.create_task(queue.submit("predictions", [b'{"id":"%d","score":0.5}' % number]))
            for number in range(16)
        ]
        await asyncio.sleep(0)
        (batch,) = queue.poll(1000, 0.0)
        assert [event.id for event in batch.events] == [str(number) for number in range(16)]
        assert not queue.poll(1000, 0.0)
        for each in waiting:
            each.cancel()
        waiting = [
            asyncio.create_task(queue.submit("predictions", [b'{"id":"x","score":0.5}'] * count))
            for count in (request_queue._PART + 1, 1)
        ]
        await asyncio.sleep(0)
        (batch,) = queue.poll(10_000, 0.0)
        assert len(batch.events) == request_queue._PART + 1  # a part of the large one, and the small one
        for each in waiting:
            each.cancel()

    with closing(SqliteStore(tmp_path / "store.db")) as store:
        asyncio.run(take(store))
