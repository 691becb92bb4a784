"""The maps at the end of a run (--map): checked before it, written at once, none lost for its key's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamcal import RecalibrationMap, Recalibrator
from streamcal.cli.output_files import map_path, write_maps
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from tests.command_line import streamcal

KEYS = [
    *(None, "", ".", "..", "../../x", "a/b", "DE", "x" * 200, "ü" * 30, "a\0b", "\n", "%2F"),
    "/",
]


def engines(*keys: str | None) -> dict[str | None, Engine]:
    return {key: Engine(RecalibratorConfig(), key) for key in keys}


def test_every_key_has_a_file_of_its_own(tmp_path: Path) -> None:
    for base in ("map.json", "map"):
        folder = tmp_path / base[:10]
        folder.mkdir()
        assert write_maps(engines(*KEYS), folder / base) == []
        found = list(folder.iterdir())
        assert len(found) == len({map_path(folder / base, key) for key in KEYS}) == len(KEYS)
        for path in found:
            RecalibrationMap.model_validate_json(path.read_bytes())
    (told,) = write_maps(engines("x" * 300), tmp_path / "map.json")
    assert "File name too long" in told
    assert (tmp_path / "map.json" / "map.DE.json").exists()
    assert (tmp_path / "map.json" / "map.a%2Fb.json").exists()


def test_a_map_is_replaced_as_a_whole_and_keeps_its_link_and_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path, link = tmp_path / "real" / "map.json", tmp_path / "link.json"
    path.write_text(Recalibrator().map.model_dump_json())
    path.chmod(0o640)
    held = path.open()  # who reads it now sees the old map to its end
    link.symlink_to(path)
    assert write_maps(engines(None), link) == []
    assert (link.is_symlink(), path.stat().st_mode & 0o777) == (True, 0o640)
    assert held.read() == Recalibrator().map.model_dump_json()
    held.close()
    assert [each.name for each in path.parent.iterdir()] == ["map.json"]


@pytest.mark.slow
def test_a_map_that_cannot_be_written_in_the_end_costs_no_other_and_no_report(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text("".join(f'{{"id":"{k}","score":0.5,"key":"{k}"}}\n' for k in "abc"))
    (tmp_path / "o.b.json").mkdir()
    command = ["run", "--events", tmp_path / "e.jsonl", "--output", tmp_path / "o.a.json"]
    done = streamcal(*command, "--map", tmp_path / "o.json", status=3)
    assert "cannot write the map of key 'a'" in done.stderr  # it would go where the answers are
    assert "cannot write the map of key 'b'" in done.stderr
    assert "predictions" in done.stdout
    assert json.loads((tmp_path / "o.c.json").read_bytes())["version"] == 0
    assert len((tmp_path / "o.a.json").read_bytes().splitlines()) == 3
