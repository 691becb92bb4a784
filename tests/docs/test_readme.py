"""What the README and the docs show runs as it stands there, and every link leads somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import RecalibrationMap
from streamcal.cli.demo import data_folder
from streamcal.run.config import RunConfig
from streamcal.testing import NormalPair

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONCEPTS = ("recalibration", "label-shift", "certificates", "drift", "operations")
MOST_LINES = 15
EARLY = 1_000  # characters of a page before its first example


def shown(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


ENTRANCES = [*blocks("README.md", "python"), *blocks("README.md", "sh")]
SHELL = [code for code in blocks("README.md", "sh") if "kafka://" not in code]


def test_the_readme_has_five_short_entrances() -> None:
    """Frames, arrays, river, the command line, Kafka, which runs in tests/connectors/kafka/test_readme.py."""
    assert len(ENTRANCES) == 5
    assert ["streamcal.backtest" in code for code in ENTRANCES] == [True, False, False, False, False]
    assert ["streamcal.river" in code for code in ENTRANCES] == [False, False, True, False, False]
    assert ["kafka://" in code for code in ENTRANCES] == [False, False, False, False, True]
    assert all(len(code.splitlines()) < MOST_LINES for code in ENTRANCES)


@pytest.mark.parametrize(
    ("page", "number"),
    [
        (name, number)
        for name in map(shown, PAGES)
        for number in range(len(blocks(name, "python")))
        if name != "docs/river.md" or number == 0  # the others build on the first: tests/test_river.py
        if name != "docs/spark.md"  # tests/spark/test_page.py
        if name != "docs/kafka.md"  # tests/connectors/kafka/test_schemas.py
        if (name, number) != ("README.md", 0)  # the year of flights
    ],
)
def test_python_runs(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(page, "python")[number], page, "exec"), {})


@pytest.mark.slow
def test_the_year_of_flights_in_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights").symlink_to(data_folder())
    exec(compile(ENTRANCES[0], "README.md", "exec"), {})
    said = dict(
        zip(["brier", "ece", "gap"], re.findall(r"(\S+) → (\S+)", capsys.readouterr().out), strict=True)
    )
    text = " ".join((ROOT / "README.md").read_text().replace("−", "-").split())
    assert f"from {float(said['brier'][0]):.4f} to {float(said['brier'][1]):.4f}" in text
    assert f"from {float(said['ece'][0]):.3f} to {float(said['ece'][1]):.3f}" in text
    assert f"from {float(said['gap'][0]):+.3f} to {float(said['gap'][1]):+.3f}" in text
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if page.parent.name != "api"], ids=shown)
def test_a_page_begins_with_an_example_that_runs(page: Path, tmp_path: Path) -> None:
    """Python runs in the test above. Of Kafka, it is the README's, which runs beside a broker."""
    language, code = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)[0]
    assert page.read_text().index("```") < EARLY
    if language == "sh" and "kafka://" in code:
        assert code in ENTRANCES
    elif page.name == "spark.md":
        assert "examples/spark/flights.py" in code
    elif language == "sh":
        files(tmp_path, seed=0)
        done = in_shell(code, tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    else:
        assert language == "python"


def write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def files(folder: Path, seed: int) -> None:
    """Write the files that the pages name."""
    rng = np.random.default_rng(seed)
    scores, labels = NormalPair(0.5).sample(2000, rng)
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))
    predicted = pairs[1000:]
    write(folder / "calibration.jsonl", ({"score": s, "label": y} for s, y in pairs[:1000]))
    write(
        folder / "predictions.jsonl",
        ({"id": f"a{i}", "score": s, "time": i} for i, (s, _) in enumerate(predicted)),
    )
    write(
        folder / "labels.jsonl",
        ({"id": f"a{i}", "label": y, "time": i + 100} for i, (_, y) in enumerate(predicted)),
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_shell(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", code], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("code", SHELL)
def test_the_command_line_runs(code: str, tmp_path: Path) -> None:
    done = in_shell(code, tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"([\d,]+) forecasts", (ROOT / "README.md").read_text())
    predictions = int(said.replace(",", ""))
    assert len((tmp_path / "recalibrated.jsonl").read_bytes().splitlines()) == predictions
    served = RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    assert f" {served.version:,} " in done.stdout.splitlines()[-1]  # what `streamcal show` prints last
    answers = rows(tmp_path / "again.jsonl")
    assert len(answers) == predictions
    assert all(row["probability"] == served.predict_one(row["score"]) for row in answers[:1000])
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert summary["brier_after"] < summary["brier_before"]
    assert summary["remarks"] == []


def test_the_map_of_the_docs_is_applied_as_they_say() -> None:
    (code,) = (each for each in blocks("docs/recalibration.md", "python") if "def probability" in each)
    maps = [RecalibrationMap.model_validate_json(text) for text in blocks("docs/recalibration.md", "json")]
    assert [each.kind for each in maps] == ["step", "linear"]
    maps += [RecalibrationMap(version=0), maps[1].model_copy(update={"knots": (0.5,), "log_odds": (-1.0,)})]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/recalibration.md", "exec"), names)
    for each in maps:
        for score in (0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.99, 1.0):
            applied = names["probability"](each.model_dump(), score)
            assert applied == pytest.approx(each.predict_one(score), abs=1e-14)


def test_the_options_of_the_docs_are_the_defaults() -> None:
    """All of them are there; what is unset is a comment, each of which could stand as it is."""
    *_, text = blocks("docs/events.md", "toml")
    config = RunConfig.model_validate(tomllib.loads(text))
    assert config == RunConfig()
    comment = re.compile(r"^# (?=\w+ = )", re.MULTILINE)
    for each in comment.finditer(text):
        one = text[: each.start()] + text[each.end() :]
        if one.startswith("matured_after", each.start()):  # it goes with another one
            one = one.replace('unlabelled = "drop"', 'unlabelled = "negative"')
        RunConfig.model_validate(tomllib.loads(one))
    written = tomllib.loads(comment.sub("", text))
    tables = config.model_dump(include={"recalibrator", "join", "keys", "columns"})
    del tables["recalibrator"]["matured_after"]  # it is that of the join
    assert {name: set(table) for name, table in written.items()} == {
        name: set(table) for name, table in tables.items()
    }


@pytest.mark.slow
def test_the_demo_gives_what_the_readme_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (said,) = re.findall(r"([\d,]+) forecasts[^#]*?Brier score falls from ([\d.]+) to ([\d.]+)\.", text)
    command = [sys.executable, "-c", "from streamcal.cli.app import main; main()", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    printed = dict(re.findall(r"^(.+?) {2,}(\S+)$", done.stdout, re.MULTILINE))
    assert printed["predictions"] == said[0]
    before, after = (f"{float(printed[f'Brier score {when}']):.4f}" for when in ("before", "after"))
    assert (before, after) == said[1:]
    (said,) = re.findall(
        r"\(ECE\) goes from ([\d.]+) to ([\d.]+), .*? from ([−+][\d.]+) to ([−+][\d.]+)\.", text, re.S
    )
    figures = {"calibration error (ECE)": ".3f", "gap (mean forecast − mean label)": "+.3f"}
    assert said == tuple(
        f"{float(printed[f'{figure} {when}']):{form}}".replace("-", "−")
        for figure, form in figures.items()
        for when in ("before", "after")
    )
    assert (tmp_path / "flights.png").read_bytes().startswith(b"\x89PNG")


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page are called in links: as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text())
    for target, anchor in links:
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize("name", CONCEPTS)
def test_every_concept_has_a_page_with_its_picture_and_says_when_it_fails(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text().lower()
    assert f"](figures/{name}.svg)" in text
    for part in ("what it is", "when you need it", "what it assumes", "how to see that it fails", "options"):
        assert re.search(rf"^(## |\*\*){part}", text, re.MULTILINE), part
    assert f"docs/{name}.md" in (ROOT / "README.md").read_text()


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[\w/-]+\.md)", (ROOT / "README.md").read_text()))
    api = set(re.findall(r"\]\((\w+\.md)", (ROOT / "docs" / "api" / "README.md").read_text()))
    assert linked | {f"docs/api/{name}" for name in api} == {shown(page) for page in PAGES[1:]}


def test_what_the_readme_says_checks_a_promise_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "README.md").read_text())
    assert len(named) >= 8
    assert all((ROOT / name).exists() for name in named)
