"""`streamcal serve`: what a client sees, and what is in the store afterwards."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.serve.openapi import document
from tests.command_line import read_lines, streamcal
from tests.join.recorder import Settled, stored_entries
from tests.receiver import receiver
from tests.serve import fuzz, kill
from tests.serve.servers import LINES, Served, lines

pytestmark = pytest.mark.slow


def test_scores_in_percent_and_labels_of_other_classes_do_not_end_it(server: Served) -> None:
    """These come first, where a run would take them for what most of its events are."""
    events = [{"id": f"p{i}", "score": 50 + i / 10} for i in range(20)]
    found = server.ask("POST", "/v1/predictions", lines(*events), LINES)[1]
    assert {each["status"] for each in found} == {422}
    labels = [{"id": f"p{i}", "label": -1} for i in range(20)]
    assert {each["status"] for each in server.ask("POST", "/v1/labels", lines(*labels), LINES)[1]} == {422}
    assert server.predict(id="p1", score=0.5)[0] == 200


def test_a_prediction_is_answered_again_as_before_and_counted_once(server: Served) -> None:
    before = server.metric("streamcal_predictions_total")
    status, first = server.predict(id="z1", score=0.9, key="a", time=1e9)
    assert status == 200
    assert first == {
        "id": "z1",
        "score": 0.9,
        "probability": 0.9,
        "map_version": 0,
        "weights": [1.0, 1.0],
        "key": "a",
        "time": 1e9,
    }
    assert server.predict(id="z1", score=0.9, key="a", time=1e9 + 5) == (200, first)
    assert server.label(id="z1", label=1) == (200, {"id": "z1", "outcome": "joined"})
    assert server.predict(id="z1", score=0.9, key="a") == (200, first)
    assert server.metric("streamcal_predictions_total") == before + 1


def test_labels_are_told_what_they_met(server: Served) -> None:
    assert server.label(id="c1", label=0) == (200, {"id": "c1", "outcome": "waiting"})
    assert server.label(id="c1", label=0) == (200, {"id": "c1", "outcome": "duplicate"})
    status, problem = server.label(id="c1", label=1)
    assert (status, problem["code"]) == (409, "conflicting_label")
    assert server.predict(id="c1", score=0.25)[0] == 200
    assert server.label(id="c1", label=0) == (200, {"id": "c1", "outcome": "duplicate"})
    assert server.label(id="c1", label=1)[0] == 409


def test_a_batch_is_answered_line_by_line(server: Served) -> None:
    body = lines({"id": "d1", "score": 0.1}, {"id": "d1", "score": 0.1}, {"id": "d2", "score": 87}) + b"\n{"
    status, (one, two, three, four) = server.ask("POST", "/v1/predictions", body, LINES)
    assert status == 200
    assert one == two
    assert (three["code"], four["code"]) == ("bad_score", "not_json")
    assert (three["status"], three["line"], three["errors"][0]["pointer"]) == (422, 3, "#/score")
    assert "must be a number in [0, 1], got 87" in three["detail"]
    assert (four["status"], four["line"]) == (400, 4)
    status, found = server.ask("POST", "/v1/labels", lines({"id": "d1", "label": 1}), LINES)
    assert (status, found) == (200, [{"id": "d1", "outcome": "joined"}])


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (b'{"id":"x","score":1.5}', {}, 422, "got 1.5"),
        (b"{", {}, 400, "not JSON"),
        (b"{}\n" * 10_001, {"content-type": "application/x-ndjson"}, 413, "at most 10,000"),
        (b"x" * (8 << 20) + b"x", {}, 413, "8,388,608 bytes"),
        (b"{}", {"content-encoding": "gzip"}, 415, "'gzip'"),
        (b"{}", {"host": "evil.example"}, 421, "'evil.example'"),
    ],
)
def test_a_refused_request_is_told_why(
    server: Served, body: bytes, headers: dict[str, str], status: int, said: str
) -> None:
    headers = {"content-type": "application/json"} | headers
    got, problem = server.ask("POST", "/v1/predictions", body, headers)
    assert (got, problem["status"]) == (status, status)
    assert said in problem["detail"]
    assert problem["title"]


def test_the_description_is_valid_openapi_and_its_examples_work(server: Served) -> None:
    status, found = server.ask("GET", "/openapi.json")
    assert status == 200
    assert found == json.loads(json.dumps(document(RunConfig())))
    OpenAPIV31SpecValidator(found).validate()
    for path in ("/v1/predictions", "/v1/labels"):
        content = found["paths"][path]["post"]["requestBody"]["content"]
        for kind, each in content.items():
            for example in each.get("examples", {}).values():
                status, answer = server.ask("POST", path, example["value"], {"content-type": kind})
                assert status == 200, (path, kind, answer)
    for path, methods in found["paths"].items():
        if "get" in methods:
            status, _ = server.ask("GET", path)
            assert status in (200, 404), path
            assert methods["get"]["responses"].keys() == {"200", "default"}


def test_the_description_lists_what_options_add_to_answers() -> None:
    tables: dict[str, Any] = {
        "columns": {"keep": ("country",)},
        "sampling": {"share": 0.1},
        "intervals": {"probability": 0.9},
        "decision": {"capacity_per_day": 5},
    }
    found = document(RunConfig(**tables))
    schema = found["components"]["schemas"]["Recalibrated"]["properties"]
    added = ["decision", "country", "ask", "propensity", "low", "high"]
    assert list(schema)[-6:] == added
    assert schema["decision"]["enum"] == ["act", "pass", "review"]
    ((media, *_),) = [found["paths"]["/v1/predictions"]["post"]["responses"]["200"]["content"].values()]
    assert list(media["examples"]["one"]["value"])[-6:] == added


def test_it_answers_what_it_took_before_it_stops(tmp_path: Path) -> None:
    served = Served(tmp_path / "store.db")
    body = lines(*({"id": f"s{i}", "score": 0.5} for i in range(10_000)))
    found: list[Any] = []
    sending = Thread(target=lambda: found.append(served.ask("POST", "/v1/predictions", body, LINES)))
    with closing(socket.create_connection(("127.0.0.1", served.port))):  # an idle one is no hindrance
        sending.start()
        while not found and served.metric("streamcal_events_total") < 1:
            pass
        status, said = served.stop()
    sending.join()
    assert status == 0, said
    assert found[0][0] == 200
    assert len(found[0][1]) == 10_000
    assert "everything that was answered is in the store" in said
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert db.execute("SELECT sum(rows) FROM entries WHERE kind = 'pending'").fetchone() == (10_000,)
        assert db.execute("SELECT count(*) FROM journal").fetchone() == (0,)


def test_it_goes_on_with_the_store_of_a_run_and_a_run_with_its_own(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(lines({"id": "f1", "score": 0.25}) + b"\n")
    run = ["run", "--events", tmp_path / "events.jsonl", "--output", tmp_path / "out.jsonl"]
    run += ["--store", tmp_path / "store.db"]
    streamcal(*run, status=0)
    served = Served(tmp_path / "store.db")
    done = streamcal(*run, status=3)
    assert "in use by another process" in done.stderr
    status, problem = served.predict(id="f1", score=0.25)
    assert (status, "its answer was not kept" in problem["detail"]) == (409, True)
    assert served.label(id="f1", label=1)[1]["outcome"] == "joined"
    assert served.predict(id="f2", score=0.5)[0] == 200
    assert served.stop()[0] == 0
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"id":"f2","label":1}\n{"id":"f3","score":0.75}\n')
    done = streamcal(*run, status=0)
    assert [row["id"] for row in read_lines(tmp_path / "out.jsonl")] == ["f1", "f3"]
    with closing(Connectors().store(str(tmp_path / "store.db"), read_only=True)) as store:
        ended = [id_ for id_, entry in stored_entries(store.load()) if isinstance(entry, Settled)]
    assert ended == ["f1", "f2"]


def test_a_killed_server_goes_on_and_a_run_waits_for_it(tmp_path: Path) -> None:
    served = Served(tmp_path / "store.db")
    answers = [served.predict(id=f"k{i}", score=i / 10) for i in range(10)]
    labelled = lines(*({"score": i % 50 / 50, "label": int(i % 50 > 40)} for i in range(300)))
    version = served.ask("POST", "/v1/predictions", labelled, LINES)[1][-1]["map_version"]
    assert version > 0
    more = 0
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        while not more or db.execute("SELECT count(*) FROM journal").fetchone() == (0,):
            served.process.send_signal(signal.SIGCONT)  # the whole state was just committed: once more
            served.predict(id=f"more {more}", score=0.5)
            served.process.send_signal(signal.SIGSTOP)
            more += 1
    served.stop(signal.SIGKILL)
    (tmp_path / "events.jsonl").write_bytes(b'{"id":"z","score":0.5}\n')
    run = ["run", "--events", tmp_path / "events.jsonl", "--output", tmp_path / "out.jsonl"]
    done = streamcal(*run, "--store", tmp_path / "store.db", status=3)
    assert "start `streamcal serve` once more" in done.stderr
    other = streamcal("serve", "--store", tmp_path / "store.db", "--port", 0, "--label-ttl", 5, status=3)
    assert "label_ttl was 2592000.0, now it is 5.0" in other.stderr
    again = Served(tmp_path / "store.db")
    assert [again.predict(id=f"k{i}", score=i / 10) for i in range(10)] == answers
    assert again.metric("streamcal_predictions_total") == 310 + more
    while not (state := again.ask("GET", "/page/state")[1])["status"]["views"][0]["versions"]["version"]:
        time.sleep(0.1)
    assert state["status"]["views"][0]["versions"]["version"][-1] >= version
    assert again.stop()[0] == 0


def test_a_source_is_learned_first(tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    ranks = np.random.default_rng(0).integers(0, 50, 3000).tolist()
    source.write_bytes(lines(*({"score": rank / 50, "label": int(rank > 40)} for rank in ranks)) + b"\n")
    served = Served(tmp_path / "store.db", "--calibration", source, "--mode", "source")
    status, answer = served.predict(id="a", score=0.5)
    assert (status, answer["map_version"] > 0) == (200, True)
    assert answer["probability"] < 0.3
    status, certified = served.ask("GET", "/v1/certificate")
    assert certified["map_version"] == answer["map_version"]
    assert certified["certificate"]["version"] == answer["map_version"]
    assert served.ask("GET", "/v1/alarms") == (200, [])
    served.stop()


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o644)
    served = Served(tmp_path / "store.db", "--token-file", token)
    assert served.predict(id="a", score=0.5)[0] == 401
    bearing = {"content-type": "application/json", "authorization": "Bearer 0123456789abcdef"}
    assert served.ask("POST", "/v1/predictions", {"id": "a", "score": 0.5}, bearing)[0] == 200
    for scheme in ("bearer", "BEARER "):  # RFC 9110, 11.1
        small = bearing | {"authorization": f"{scheme} 0123456789abcdef"}
        assert served.ask("POST", "/v1/predictions", {"id": "a", "score": 0.5}, small)[0] == 200
    wrong = bearing | {"authorization": "Bearer 0123456789abcdeF"}
    assert served.ask("POST", "/v1/predictions", {"id": "a", "score": 0.5}, wrong)[0] == 401
    assert served.ask("GET", "/v1/map")[0] == served.ask("GET", "/metrics")[0] == 401
    assert served.ask("GET", "/healthz")[0] == 200
    _, said = served.stop()
    assert "other users can read it" in said


def test_lines_in_flight_are_refused_as_a_whole_when_the_store_fails(tmp_path: Path) -> None:
    """The status says so, for clients that retry by it: of the journal, and of a whole commit."""
    served = Served(tmp_path / "store.db")
    served.predict(id="a", score=0.5)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1000, 1000))  # as a disk that is full
    found: list[Any] = []
    bodies = [lines(*({"id": f"{number} {i}", "score": 0.5} for i in range(300))) for number in range(8)]

    def send(body: bytes) -> None:
        with suppress(OSError, http.client.HTTPException):  # of a server that has ended: no answer
            found.append(served.ask("POST", "/v1/predictions", body, LINES))

    sending = [Thread(target=send, args=(body,)) for body in bodies]
    for each in sending:
        each.start()
    for each in sending:
        each.join()
    statuses = [(status, problem["status"]) for status, problem in found]
    assert (503, 503) in statuses
    assert {*statuses} <= {(503, 503), (429, 429)}  # the latter if the machine is slow
    assert served.process.wait(60) == 3
    served.stop()


@pytest.mark.crash
def test_killed_under_load() -> None:
    assert "every id was answered" in kill.run(2, seed=2, longest=0.7)


def test_malformed_requests() -> None:
    assert "requests" in fuzz.run(400, seed=3)


def test_alarms_are_posted_also_if_it_is_killed(tmp_path: Path) -> None:
    """The rate falls with the score. The second server gets the alarm from the journal, or from the state."""
    store, config = tmp_path / "store.db", tmp_path / "streamcal.toml"
    config.write_text('[recalibrator]\nmode = "target"\n')
    rng = np.random.default_rng(5)
    scores = rng.random(3_000)
    labels = (rng.random(3_000) > scores).astype(int)
    events = [
        {"id": f"p{i}", "score": s, "label": y}
        for i, (s, y) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True))
    ]
    ids = []
    with receiver(503) as hook:
        served = Served(store, "--config", config, "--alarms", hook.url)
        assert served.ask("POST", "/v1/predictions", lines(*events), LINES)[0] == 200
        while not hook.got:
            time.sleep(0.05)
        ids.append(hook.got[0][0]["webhook-id"])
        served.stop(signal.SIGKILL)
    with receiver(200) as hook:
        served = Served(store, "--config", config, "--alarms", hook.url)
        while len(hook.taken) < 2:  # one of the map, one of the forecasts
            time.sleep(0.05)
        alarms = served.ask("GET", "/v1/alarms")[1]
        posted = {data["assumption"]: data for data in (json.loads(body)["data"] for _, body in hook.got)}
        assert len(alarms) == 2
        for alarm in alarms:
            assert alarm["advice"] == posted[alarm["assumption"]]["advice"]
        first = posted[alarms[0]["assumption"]]
        assert first == {**alarms[0], "time": first["time"]}
        assert served.stop()[0] == 0
        assert {*ids, *hook.taken} == set(hook.taken)
        assert len(hook.taken) == 2


# Batches of many keys, and segments


def test_many_new_keys_in_one_request_are_answered(server: Served) -> None:
    body = lines(*({"id": f"key {i}", "score": 0.5, "key": f"new {i}"} for i in range(1_200)))
    status, found = server.ask("POST", "/v1/predictions", body, LINES)
    assert (status, len(found)) == (200, 1_200)
    assert all("probability" in each for each in found)


def test_segments_are_fields(tmp_path: Path) -> None:
    options = tmp_path / "c.toml"
    options.write_text('[segments]\nfields = ["country", "tier"]\n')
    served = Served(tmp_path / "store.db", "--config", options)
    fields = served.ask("GET", "/openapi.json")[1]["components"]["schemas"]["Prediction"]["properties"]
    assert {"country", "tier"} <= fields.keys()
    rng = np.random.default_rng(0)
    for begin in range(0, 1200, 200):
        predictions, labels = [], []
        for number in range(begin, begin + 200):
            country = ("NL", "PL")[number % 2]
            rate = 0.2 if country == "NL" else 0.8
            predictions.append({"id": f"a{number}", "score": 0.5, "country": country, "tier": number % 3})
            labels.append({"id": f"a{number}", "label": int(rng.random() < rate)})
        assert served.ask("POST", "/v1/predictions", lines(*predictions), LINES)[0] == 200
        assert served.ask("POST", "/v1/labels", lines(*labels), LINES)[0] == 200
    one = [
        served.predict(id=f"b{country}", score=0.5, country=country, tier=1)[1]["probability"]
        for country in ("NL", "PL")
    ]
    assert one[0] < 0.3 < 0.7 < one[1]
    served.stop()
