"""A run that is left running: signals, following, metrics, logs, show, replay, a connector from outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import read_lines, streamcal, synthetic, wait_for
from tests.forks import Fork

ROOT = Path(__file__).parents[2]


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    return Fork(
        [*arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def lines_of(path: Path, count: int) -> Callable[[], Any]:
    return lambda: path.exists() and len(path.read_bytes().splitlines()) >= count


def event(id_: str, time: float, **fields: object) -> str:
    return json.dumps({"id": id_, "time": time, **fields}) + "\n"


@pytest.mark.slow
def test_sigterm_commits_and_exits_0_and_a_restart_goes_on(tmp_path: Path) -> None:
    source, _, _ = synthetic(tmp_path)
    events, labels = tmp_path / "e.jsonl", tmp_path / "l.jsonl"
    events.write_text("".join(event(f"a{i}", i, score=0.5) for i in range(20)))
    labels.write_text("")
    arguments = ["run", "--calibration", source, "--events", events, "--labels", labels, "--follow"]
    arguments += [
        *("--output", tmp_path / "o.jsonl", "--store", tmp_path / "s.db", "--maps", tmp_path / "m.jsonl"),
    ]
    process = start(*arguments)
    wait_for(lines_of(tmp_path / "o.jsonl", 20))
    with labels.open("a") as more:
        more.write("".join(event(f"a{i}", 100 + i, label=i % 2) for i in range(20)))
    with events.open("a") as more:
        more.write(event("b", 200, score=0.5) + '{"id":"c","sco')  # a line that is still being written
    wait_for(lines_of(tmp_path / "o.jsonl", 21))
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert b"everything processed so far is written" in stderr

    with events.open("a") as more:
        more.write('re":0.5}\n')
    process = start(*arguments)
    wait_for(lines_of(tmp_path / "o.jsonl", 22))
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert [row["id"] for row in read_lines(tmp_path / "o.jsonl")][-2:] == ["b", "c"]
    assert re.search(r"joined +20\n", stdout.decode())
    versions = [row["version"] for row in read_lines(tmp_path / "m.jsonl")]
    assert versions == sorted(set(versions))


@pytest.mark.slow
def test_apply_follows_the_newest_map(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    run = ["run", "--calibration", source, "--output", tmp_path / "o.jsonl", "--store", tmp_path / "s.db"]
    run += ["--maps", tmp_path / "maps.jsonl"]
    process = start("apply", "--follow", tmp_path / "maps.jsonl")
    assert process.stdin
    assert process.stdout
    process.stdin.write(b'{"id":"first","score":0.5}\n')
    process.stdin.flush()
    assert streamcal(*run, "--events", events).returncode == 0
    first = json.loads(process.stdout.readline())
    maps = read_lines(tmp_path / "maps.jsonl")
    assert first["map_version"] == maps[-1]["version"]
    assert streamcal(*run, "--events", events, "--labels", labels).returncode == 0
    newest = read_lines(tmp_path / "maps.jsonl")[-1]
    assert newest["version"] > maps[-1]["version"]
    time.sleep(0.5)
    process.stdin.write(b'{"id":"second","score":0.5}\n{"id":"x","score":0.5,"key":"unknown"}\n')
    process.stdin.close()
    second = json.loads(process.stdout.readline())
    assert second["map_version"] == newest["version"]
    assert process.stderr
    assert b"there is no map for key 'unknown' yet" in process.stderr.read()
    assert process.wait(60) == 0
    process.stdout.close()
    process.stderr.close()


@pytest.mark.slow
def test_metrics_by_a_real_parser(tmp_path: Path) -> None:
    source, _, _ = synthetic(tmp_path)
    events = tmp_path / "e.jsonl"
    text = "".join(event(f"a{i}", i, score=0.25) for i in range(200))
    text += (
        "".join(event(f"a{i}", i + 1000, label=i % 2) for i in range(100))
        + "oops\n"
        + event("a0", 1, label=1)
    )
    events.write_text(text)
    process = start(
        *("run", "--calibration", source, "--events", events, "--output", tmp_path / "o.jsonl"),
        *("--follow", "--metrics", "0", "--log-json", "--rejects", tmp_path / "r.jsonl"),
    )
    assert process.stderr
    said = json.loads(process.stderr.readline())
    assert said["level"] == "info"
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", said["message"])
    assert url
    wait_for(lines_of(tmp_path / "r.jsonl", 2))
    time.sleep(0.5)
    with urllib.request.urlopen(url[0]) as answer:
        page = answer.read().decode()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["streamcal_events_total",] == 400 + 302
    assert samples["streamcal_rejects_total",] == 2
    assert samples["streamcal_join_outcomes_total", "joined"] == 100
    assert samples["streamcal_join_outcomes_total", "duplicate"] == 1
    assert samples["streamcal_pending",] == 100
    assert samples["streamcal_label_delay_seconds_count",] == 100
    assert samples["streamcal_label_delay_seconds_sum",] == 100 * 1000
    assert samples["streamcal_label_delay_seconds_bucket", "600.0"] == 0
    assert samples["streamcal_label_delay_seconds_bucket", "3600.0"] == 100
    assert samples["streamcal_label_delay_quantile_seconds", "0.9"] == pytest.approx(1000, rel=0.15)
    assert samples["streamcal_out_ratio",] == 0.5
    assert samples["streamcal_oldest_pending_seconds",] == 999  # of a100, at 1,099
    assert samples["streamcal_source_lag", "", str(events)] == 0
    assert samples["streamcal_map_version", ""] > 10
    assert samples["streamcal_map_bins", ""] > 1
    assert 0.4 < samples["streamcal_prior", "", "source"] < 0.6
    assert samples["streamcal_prior", "", "target"] == pytest.approx(50.5 / 101)
    assert samples["streamcal_brier_score", "before"] == 0.3125
    assert samples["streamcal_gap", "before"] == -0.25
    assert samples["streamcal_batch_seconds_count",] >= 1
    weights = [value for name, value in samples.items() if name[0] == "streamcal_mixture_weight"]
    assert sum(weights) == pytest.approx(1.0)
    assert samples["streamcal_leader_changes_total",] == 0  # the labels are learned together
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    logged = [json.loads(line) for line in stderr.splitlines()]
    assert logged[-2]["message"] == "end of run"
    assert logged[-2]["join"]["joined"] == 100


@pytest.mark.slow
def test_show_and_replay(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    inputs = ["--calibration", source, "--events", events, "--labels", labels]
    assert (
        streamcal("run", *inputs, "--output", tmp_path / "o.jsonl", "--store", tmp_path / "s.db").returncode
        == 0
    )
    done = streamcal("show", tmp_path / "s.db")
    assert done.returncode == 0, done.stderr
    assert "map version" in done.stdout
    shown = json.loads(streamcal("show", tmp_path / "s.db", "--json").stdout)
    assert shown["engines"][0]["target_labels"] == 400
    assert [row["version"] for row in shown["maps"]] == sorted({row["version"] for row in shown["maps"]})
    assert shown["maps"][-1]["version"] == shown["engines"][0]["version"]
    assert shown["join"]["joined"] == 400
    done = streamcal("replay", "--store", tmp_path / "s.db", *inputs)
    assert done.returncode == 0, done.stderr
    assert "byte-equal" in done.stdout

    lines = labels_of = (tmp_path / "l.jsonl", __import__("gzip").decompress(labels.read_bytes()))
    lines[0].write_bytes(labels_of[1].replace(b'"label":1', b'"label":0', 1))
    done = streamcal("replay", "--store", tmp_path / "s.db", *inputs[:4], "--labels", lines[0])
    assert done.returncode == 1
    assert streamcal("show", tmp_path / "absent.db").returncode == 3
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.nightly
def test_the_connector_of_the_examples(tmp_path: Path) -> None:
    """The whole package, installed as it stands: the command line finds it."""
    package = tmp_path / "package"
    shutil.copytree(ROOT / "examples" / "connector", package)
    pip = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"),
        "--no-index",
    ]
    subprocess.run([*pip, "--target", tmp_path / "site", package], check=True, capture_output=True)
    journal = tmp_path / "log.txt"
    journal.write_text("a 0.25\nb 0.5\nb 2\n")
    script = textwrap.dedent("from streamcal.cli.app import main; main()")
    done = subprocess.run(
        [sys.executable, "-c", script, "run", "--events", f"scorelog:{journal}", "--output", "-"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
    assert b"log.txt, line 3: a score must be a number in [0, 1], got 2" in done.stderr
