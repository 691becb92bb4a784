"""A run that is left running: signals, following, metrics, logs, show, a connector from outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import STREAMCAL, read_lines, streamcal, synthetic, wait_for
from tests.forks import Fork

ROOT = Path(__file__).parents[2]


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    return Fork(
        [*arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def ended(process: Any, number: signal.Signals = signal.SIGTERM, status: int = 0) -> tuple[bytes, bytes]:
    """End a process by a signal; return what it wrote."""
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == status, stderr
    return stdout, stderr


def lines_of(path: Path, count: int) -> Callable[[], Any]:
    return lambda: path.exists() and len(path.read_bytes().splitlines()) >= count


def event(id_: str, time: float, **fields: object) -> str:
    return json.dumps({"id": id_, "time": time, **fields}) + "\n"


@pytest.mark.slow
def test_sigterm_commits_and_exits_0_and_a_restart_goes_on(tmp_path: Path) -> None:
    source, _, _ = synthetic(tmp_path)
    events, labels, out = (tmp_path / f"{name}.jsonl" for name in "elo")
    events.write_text("".join(event(f"a{i}", i, score=0.5) for i in range(20)))
    labels.write_text("")
    arguments = ["run", "--calibration", source, "--events", events, "--labels", labels, "--follow"]
    arguments += ["--output", out, "--store", tmp_path / "s.db", "--maps", tmp_path / "m.jsonl"]
    process = start(*arguments)
    wait_for(lines_of(out, 20))
    with labels.open("a") as more:
        more.write("".join(event(f"a{i}", 100 + i, label=i % 2) for i in range(20)))
    with events.open("a") as more:
        more.write(event("b", 200, score=0.5) + '{"id":"c","sco')  # a line that is still being written
    wait_for(lines_of(out, 21))
    assert b"everything processed so far is written" in ended(process)[1]

    with events.open("a") as more:
        more.write('re":0.5}\n')
    process = start(*arguments)
    wait_for(lines_of(out, 22))
    stdout, _ = ended(process, signal.SIGINT, 130)
    assert [row["id"] for row in read_lines(out)][-2:] == ["b", "c"]
    assert re.search(r"joined +20\n", stdout.decode())
    versions = [row["version"] for row in read_lines(tmp_path / "m.jsonl")]
    assert versions == sorted(set(versions))


@pytest.mark.slow
def test_apply_follows_the_newest_map(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    run = ["run", "--calibration", source, "--output", tmp_path / "o.jsonl", "--store", tmp_path / "s.db"]
    run += ["--maps", tmp_path / "maps.jsonl", "--events", events]
    process = start("apply", "--follow", tmp_path / "maps.jsonl")
    process.stdin.write(b'{"id":"first","score":0.5}\n')
    process.stdin.flush()
    streamcal(*run, status=0)
    first = json.loads(process.stdout.readline())["map_version"]
    assert first == read_lines(tmp_path / "maps.jsonl")[-1]["version"]
    streamcal(*run, "--labels", labels, status=0)
    newest = read_lines(tmp_path / "maps.jsonl")[-1]["version"]
    assert newest > first
    time.sleep(0.5)
    stdout, stderr = process.communicate(
        b'{"id":"second","score":0.5}\n{"id":"x","score":0.5,"key":"unknown"}\n', timeout=60
    )
    assert process.returncode == 0
    assert json.loads(stdout)["map_version"] == newest
    assert b"there is no map for key 'unknown' yet" in stderr


@pytest.mark.slow
def test_metrics_by_a_real_parser(tmp_path: Path) -> None:
    source, _, _ = synthetic(tmp_path)
    events = tmp_path / "e.jsonl"
    text = [event(f"a{i}", i, score=0.25) for i in range(200)]
    text += [event(f"a{i}", i + 1000, label=i % 2) for i in range(100)]
    events.write_text("".join([*text, "oops\n", event("a0", 1, label=1)]))
    process = start(
        *("run", "--calibration", source, "--events", events, "--output", tmp_path / "o.jsonl"),
        *("--follow", "--metrics", "0", "--log-json", "--rejects", tmp_path / "r.jsonl"),
    )
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
    wanted = {
        ("events_total",): 400 + 302,
        ("rejects_total",): 2,
        ("join_outcomes_total", "joined"): 100,
        ("join_outcomes_total", "duplicate"): 1,
        ("pending",): 100,
        ("label_delay_seconds_count",): 100,
        ("label_delay_seconds_sum",): 100 * 1000,
        ("label_delay_seconds_bucket", "600.0"): 0,
        ("label_delay_seconds_bucket", "3600.0"): 100,
        ("label_delay_quantile_seconds", "0.9"): pytest.approx(1000, rel=0.15),
        ("out_ratio",): 0.5,
        ("oldest_pending_seconds",): 999,  # of a100, at 1,099
        ("source_lag", "", str(events)): 0,
        ("prior", "", "source"): pytest.approx(0.5, abs=0.1),
        ("prior", "", "target"): pytest.approx(50.5 / 101),
        ("brier_score", "before"): 0.3125,
        ("gap", "before"): -0.25,
        ("leader_changes_total",): 0,  # the labels are learned together
    }
    assert {(name, *labels): samples[f"streamcal_{name}", *labels] for name, *labels in wanted} == wanted
    assert samples["streamcal_map_version", ""] > 10
    assert samples["streamcal_map_bins", ""] > 1
    assert samples["streamcal_batch_seconds_count",] >= 1
    weights = [value for name, value in samples.items() if name[0] == "streamcal_mixture_weight"]
    assert sum(weights) == pytest.approx(1.0)
    logged = [json.loads(line) for line in ended(process)[1].splitlines()]
    assert logged[-2]["message"] == "end of run"
    assert logged[-2]["join"]["joined"] == 100


@pytest.mark.slow
def test_show(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    inputs = ["--calibration", source, "--events", events, "--labels", labels]
    streamcal("run", *inputs, "--output", tmp_path / "o.jsonl", "--store", tmp_path / "s.db", status=0)
    done = streamcal("show", tmp_path / "s.db", status=0)
    assert "map version" in done.stdout
    shown = json.loads(streamcal("show", tmp_path / "s.db", "--json").stdout)
    assert shown["engines"][0]["target_labels"] == 400
    assert [row["version"] for row in shown["versions"]] == sorted(
        {row["version"] for row in shown["versions"]}
    )
    assert shown["versions"][-1]["version"] == shown["engines"][0]["version"]
    assert shown["join"]["joined"] == 400
    streamcal("show", tmp_path / "absent.db", status=3)
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.nightly
def test_the_connector_of_the_examples(tmp_path: Path) -> None:
    """The whole package, installed as it stands: the command line finds it."""
    shutil.copytree(ROOT / "examples" / "connector", tmp_path / "package")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    target = ["--target", tmp_path / "site", tmp_path / "package"]
    subprocess.run([*pip, *target], check=True, capture_output=True)
    (tmp_path / "log.txt").write_text("a 0.25\nb 0.5\nb 2\n")
    done = subprocess.run(
        [*STREAMCAL, "run", "--events", f"scorelog:{tmp_path}/log.txt", "--output", "-"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
    assert b"log.txt, line 3: a score must be a number in [0, 1], got 2" in done.stderr
