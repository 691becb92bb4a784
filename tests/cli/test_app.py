"""The command line, as a user calls it: each bad input, exit statuses, formats, interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import RecalibrationMap, Recalibrator
from tests.command_line import GOOD, read_lines, streamcal, synthetic, table, write_lines
from tests.inside import memo_of


def run(folder: Path, events: bytes, *more: object) -> tuple[Any, list, list]:
    """Run on one file of events; return the process, the answers and the rejects."""
    (folder / "events.jsonl").write_bytes(events)
    out, rejects = folder / "out.jsonl", folder / "rejects.jsonl"
    options = ["--output", out, "--rejects", rejects, *more]
    done = streamcal("run", "--events", folder / "events.jsonl", *options, status=0)
    return done, read_lines(out), read_lines(rejects)


BAD = (
    (b'{"id":"a","score":NaN}', "not_json"),
    (b'{"id":"a","score":-0.1}', "bad_score"),
    (b'{"id":"a","score":"0.5"}', "bad_score"),
    (b'{"id":"a","label":2}', "bad_label"),
    (b'{"id":"a",', "not_json"),
    (b'{"id":"\xff","score":0.5}', "not_utf8"),
    (b'{"id":"' + b"x" * 10_000_000 + b'","score":0.5}', "too_long"),
    (GOOD.strip(), "duplicate_prediction"),
    (b'{"id":"nobody","label":1}', "unmatched_label"),
)


@pytest.mark.slow
def test_the_run_goes_on_past_bad_input(tmp_path: Path) -> None:
    good = b"".join(b'{"id":"%d","score":0.5,"label":%d}\n' % (i, i % 2) for i in range(100))
    bad = b"".join(raw + b"\n" for raw, _ in BAD)
    done, answers, rejects = run(tmp_path, good + GOOD + bad + b'{"id":"last","score":0.25}\n')
    assert [(row["id"], row["score"]) for row in answers[-2:]] == [("good", 0.5), ("last", 0.25)]
    assert {row["source"] for row in rejects} == {str(tmp_path / "events.jsonl")}
    found = {row["line"]: (row["code"], row["raw"]) for row in rejects}
    assert [found[102 + index][0] for index in range(len(BAD))] == [code for _, code in BAD]
    for index, (raw, _) in enumerate(BAD):
        text, kept = raw.decode("utf-8", "backslashreplace"), found[102 + index][1]
        assert kept == text if len(text) < 4096 else text.startswith(kept)
    assert table(done)["rejected"] == f"{len(BAD)}"


@pytest.mark.slow
def test_exit_2_on_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(GOOD)
    (tmp_path / "bad.toml").write_text("[recalibrator]\nbins = 0\n")
    base = ["run", "--events", tmp_path / "events.jsonl", "--output"]
    for arguments, message in [
        (["run", "--output", "x"], "--events"),
        ([*base, "carrier:pigeon"], "no connector for 'carrier'"),
        ([*base, tmp_path / "absent" / "out.jsonl"], "cannot write"),
        ([*base, "-", "--config", tmp_path / "bad.toml"], "bins"),
        ([*base, "-", "--config", tmp_path / "absent.toml"], "cannot read the configuration"),
        (["apply", "--map", tmp_path / "absent.json"], "cannot read"),
        (["apply", "--map", tmp_path / "events.jsonl"], "is not a map"),
    ]:
        done = streamcal(*arguments, status=2)
        assert message in done.stderr


@pytest.mark.slow
def test_a_run_equals_the_engine_by_hand_and_is_reproducible(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    out, map_file, config = tmp_path / "out.jsonl.gz", tmp_path / "map.json", tmp_path / "c.toml"
    config.write_text("[recalibrator]\nbins = 7\n[join]\nlabel_ttl = 1000\n")
    arguments = ["--calibration", source, "--events", events, "--labels", labels, "--output", out]
    arguments += ["--map", map_file, "--config", config]
    done = streamcal("run", *arguments, status=0)
    first = read_lines(out)

    engine = Recalibrator(bins=7)
    for row in read_lines(source):
        engine.learn_one(row["score"], row["label"], "source")
    scores = [float(line.split(",")[2]) for line in events.read_text().splitlines()[1:]]
    classes = [row["label"] for row in read_lines(labels)]
    squares = []
    for i in range(450):  # of equal times, the prediction comes first
        if i < 400:
            wanted = {"id": str(i), "score": scores[i], "probability": engine.predict_one(scores[i])}
            assert first[i] | wanted | {"map_version": engine.version} == first[i]
            engine.observe_one(scores[i])
        if (late := i - 50) >= 0:
            squares.append((first[late]["probability"] - classes[late]) ** 2)
            engine.learn_one(scores[late], classes[late], "target", memo=memo_of(late))
    shown = table(done)
    assert shown["joined"] == "400"
    assert float(shown["Brier score after"]) == pytest.approx(np.mean(squares), abs=1e-5)
    assert float(shown["Brier score before"]) > float(shown["Brier score after"])
    assert RecalibrationMap.model_validate_json(map_file.read_text()) == engine.map
    assert streamcal("run", *arguments).stdout == done.stdout
    assert read_lines(out) == first


@pytest.mark.slow
def test_apply_gives_what_the_map_gives(tmp_path: Path) -> None:
    recalibration = RecalibrationMap(version=4, edges=(0.0, 0.5, 1.0), values=(0.25, 0.75))
    (tmp_path / "map.json").write_text(recalibration.model_dump_json())
    stdin = b'{"id":"a","score":0.5}\n{"id":"b","label":1}\noops\n{"score":0.1,"label":1}\n'
    done = streamcal("apply", "--map", tmp_path / "map.json", stdin=stdin, status=0)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(row["id"], row["probability"], row["map_version"]) for row in rows]
    assert found == [("a", 0.75, 4), (None, 0.25, 4)]
    assert "2 predictions recalibrated with map version 4, 2 rejected" in done.stderr
    streamcal("apply", "--map", tmp_path / "map.json", status=1)


def test_standard_input_and_output_stay_pure(tmp_path: Path) -> None:
    done = streamcal("run", "--events", "-", "--output", "-", stdin=GOOD + b"oops\n", status=0)
    assert json.loads(done.stdout)["id"] == "good"
    assert "rejected: -, line 2: not JSON" in done.stderr
    assert "Brier score before" in done.stderr


def test_one_engine_a_key(tmp_path: Path) -> None:
    rows = [
        {"score": (i % 10) / 10, "label": int(key == "up"), "key": key}
        for i in range(100)
        for key in ("up", "down")
    ]
    config = tmp_path / "c.toml"
    config.write_text('[recalibrator]\nmode = "target"\nbins = 1\n')
    given = write_lines(tmp_path / "given", rows).read_bytes()
    done, answers, _ = run(tmp_path, given, "--map", tmp_path / "map.json", "--config", config)
    for key, value in (("up", 1.0), ("down", 0.0)):
        found = RecalibrationMap.model_validate_json((tmp_path / f"map.{key}.json").read_text())
        assert found.values == (value,)
    assert [row["probability"] for row in answers[-2:]] == [1.0, 0.0]
    assert "map version [up]" in table(done)
