"""Alarms that go out: to a file, and to a webhook whose receiver fails, hangs or dies."""

from __future__ import annotations

import base64
import hmac
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from streamcal_connectors import webhook
from streamcal_connectors.webhook import SECRET, WebhookConnector, WebhookSink

from streamcal.run.ports import SinkOptions
from streamcal.run.rows import AlarmRow
from tests.command_line import read_lines, streamcal, wait_for
from tests.forks import Fork
from tests.receiver import receiver

KEY = b"k" * 32
TOLD = f"whsec_{base64.b64encode(KEY).decode()}"


def alarm(number: int, key: str | None = None) -> AlarmRow:
    return AlarmRow(number, key, 1e9, "monotone", "an assumption", "a title", "a reason", 7, "do this")


def opened(url: str, job: str = "a store", position: Any = None) -> WebhookSink:
    sink = WebhookConnector().sink(url, SinkOptions(rows="alarms"))
    assert sink.resume(job, position) is None
    return sink


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_FIRST", 0.01)
    monkeypatch.setattr(webhook, "_LONGEST", 0.01)


def test_an_alarm_is_posted_until_it_is_taken_with_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, TOLD)
    with receiver(503, "die", 302, 404, 200) as hook:
        sink = opened(hook.url.replace("//", "//me:pass%20word@"))
        sink.write([alarm(1, "a key")])
        assert not hook.got  # nothing goes out before the commit
        waiting = sink.commit({})["waiting"]
        wait_for(lambda: sink.commit({}) == {"waiting": {}})
        sink.close()
    assert [len(hook.got), len({body for _, body in hook.got})] == [5, 1]
    heads, body = hook.got[-1]
    event = json.loads(body)
    assert list(waiting) == [event["id"]] == hook.taken
    assert event["data"]["advice"] == "do this"
    assert (event["specversion"], event["subject"]) == ("1.0", "a key")
    assert event["time"] == "2001-09-09T01:46:40+00:00"
    assert heads["content-type"].startswith("application/cloudevents+json")
    assert base64.b64decode(heads["authorization"].split()[1]) == b"me:pass word"
    for heads, body in hook.got:  # as a receiver by Standard Webhooks checks it
        signed = b".".join((heads["webhook-id"].encode(), heads["webhook-timestamp"].encode(), body))
        mine = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
        assert heads["webhook-signature"] == f"v1,{mine}"
        assert heads["webhook-id"] == event["id"]


def inverted(folder: Path) -> list[str]:
    """Write a source in which a higher score means a lower probability; return the arguments of a run."""
    rng = random.Random(1)
    source, events = folder / "source.jsonl", folder / "events.jsonl"
    scores = [rng.random() for _ in range(2000)]
    source.write_text("".join(f'{{"score":{s},"label":{int(rng.random() > s)}}}\n' for s in scores))
    events.write_text("".join(f'{{"id":"{i}","time":{i},"score":0.5}}\n' for i in range(20)))
    return ["run", "--calibration", str(source), "--events", str(events), "--output", str(folder / "o.jsonl")]


@pytest.mark.slow
def test_a_run_ends_well_with_a_dead_receiver_and_the_next_delivers_once(tmp_path: Path) -> None:
    """To a file, too; the log has the alarm of the source, and nothing of a URL."""
    run = [*inverted(tmp_path), "--store", str(tmp_path / "s.db"), "--alarms"]
    done = streamcal(*run[:-3], "--alarms", tmp_path / "a.jsonl")
    (row,) = read_lines(tmp_path / "a.jsonl")
    assert (row["number"], row["key"], row["time"], row["target_labels"]) == (1, None, None, 0)
    assert row["assumption"] == "P[Y=1 | score] does not decrease with the score"
    assert "option positive" in row["advice"]
    assert row["advice"] in done.stderr
    (tmp_path / "o.jsonl").unlink()
    with receiver(503) as hook:
        done = streamcal(*run, hook.url, status=0)
        assert "did not take an alarm (HTTP status 503)" in done.stderr
        assert "the next run delivers them" in done.stderr
        assert "secret-path" not in done.stderr
        hook.answers = [200]
        ids = {json.loads(body)["id"] for _, body in hook.got}
        for _ in range(2):  # it is recorded as delivered
            streamcal(*run, hook.url, status=0)
            assert hook.taken == list(ids)
    (tmp_path / "e.jsonl").write_text('{"id":"a","score":0.5}\n')
    done = streamcal(
        "run", "--events", tmp_path / "e.jsonl", "--output", "https://me:hidden@host/hidden", status=2
    )
    assert "a webhook takes alarms only (--alarms), not answers" in done.stderr
    assert "hidden" not in done.stderr


@pytest.mark.slow
def test_a_run_that_is_killed_while_the_receiver_hangs_delivers_with_the_same_id(tmp_path: Path) -> None:
    run = [*inverted(tmp_path), "--store", str(tmp_path / "s.db"), "--follow", "--alarms"]
    with receiver("hang") as hook:
        with Fork([*run, hook.url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda: hook.got and len((tmp_path / "o.jsonl").read_bytes().splitlines()) == 20)
            process.kill()  # the answers went on although nobody took the alarm
        hook.answers = [200]
        with Fork([*run, hook.url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda: hook.taken)
            process.terminate()
            assert process.wait(60) == 0
        assert hook.taken == [json.loads(hook.got[0][1])["id"]]
