"""What the README and the docs show runs as it stands there, and every link leads somewhere."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from streamcal import RecalibrationMap
from streamcal.cli.demo import write_files
from streamcal.run.config import RunConfig
from streamcal.testing import NormalPair
from tests.command_line import in_shell, read_lines, write_lines

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


ENTRANCES = [*blocks("README.md", "python"), *blocks("README.md", "sh")]
SHELL = [code for code in blocks("README.md", "sh") if "kafka://" not in code]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number"),
    [
        (name, number)
        for name in map(shown, PAGES)
        for number in range(len(blocks(name, "python")))
        if name != "docs/river.md" or number == 0  # the others build on the first: tests/test_river.py
        if name != "docs/spark.md"  # tests/spark/test_fit.py
        if name != "docs/kafka.md"  # tests/connectors/kafka/test_readme.py
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
    write_files(tmp_path / "flights")
    exec(compile(ENTRANCES[0], "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"^brier +0\.\d+ +\[0\.\d+, 0\.\d+\]$", said, re.MULTILINE)  # of `evaluate`
    printed = re.search(r"^Brier score +(0\.\d+) +(0\.\d+)$", said, re.MULTILINE)
    assert printed
    assert float(printed[2]) < float(printed[1])
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")


def first_command(page: Path) -> str:
    """Return the first block of a page if it is for a shell and needs neither a broker nor Spark."""
    found = re.search(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if not found or found[1] != "sh" or "kafka://" in found[2] or "spark" in found[2]:
        return ""
    return found[2]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if first_command(page)], ids=shown)
def test_the_first_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    files(tmp_path, seed=0)
    assert in_shell(first_command(page), tmp_path)


def files(folder: Path, seed: int) -> None:
    """Write the files that the pages name."""
    scores, labels = NormalPair(0.5).sample(2000, np.random.default_rng(seed))
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))
    later = list(enumerate(pairs[1000:]))
    write_lines(folder / "calibration.jsonl", ({"score": s, "label": y} for s, y in pairs[:1000]))
    predictions = ({"id": f"a{i}", "score": s, "time": i} for i, (s, _) in later)
    write_lines(folder / "predictions.jsonl", predictions)
    write_lines(
        folder / "labels.jsonl", ({"id": f"a{i}", "label": y, "time": i + 100} for i, (_, y) in later)
    )


@pytest.mark.slow
@pytest.mark.parametrize("code", SHELL)
def test_the_command_line_runs(code: str, tmp_path: Path) -> None:
    said = in_shell(code, tmp_path)
    predictions = len(read_lines(tmp_path / "flights" / "predictions.jsonl.gz"))
    assert len((tmp_path / "recalibrated.jsonl").read_bytes().splitlines()) == predictions
    served = RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    assert any(line.split() == ["map", "version", f"{served.version:,}"] for line in said.splitlines())
    answers = read_lines(tmp_path / "again.jsonl")
    assert len(answers) == predictions
    assert all(row["probability"] == served.predict_one(row["score"]) for row in answers[:1000])
    assert (tmp_path / "report.html").stat().st_size > 10_000
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert summary["brier_after"] < summary["brier_before"]
    assert summary["remarks"] == []


def test_the_options_of_the_docs_are_the_defaults() -> None:
    """All of them are there; what is unset is a comment, each of which could stand as it is."""
    *_, text = blocks("docs/options.md", "toml")
    config = RunConfig.model_validate(tomllib.loads(text))
    assert config == RunConfig()
    comment = re.compile(r"^# (?=\w+ = )", re.MULTILINE)
    for each in comment.finditer(text):
        one = text[: each.start()] + text[each.end() :]
        if one.startswith("label_delay_limit", each.start()):  # of the join, which goes with another one
            one = text.replace("# label_delay_limit", "label_delay_limit").replace('"drop"', '"negative"')
        if one.startswith(("false_", "review"), each.start()):  # costs go with one another
            one = re.sub(r"# (?=false_|review)", "", text)
        RunConfig.model_validate(tomllib.loads(one))
    written = tomllib.loads(comment.sub("", text))
    tables = config.model_dump(
        include={"recalibrator", "join", "keys", "segments", "sampling", "decision", "intervals", "columns"}
    )
    assert {name: set(table) for name, table in written.items()} == {
        name: set(table) for name, table in tables.items()
    }


@pytest.mark.slow
def test_the_demo_gives_what_the_readme_says(tmp_path: Path) -> None:
    said = in_shell("streamcal demo", tmp_path)
    printed = dict(re.findall(r"^(.+?) {2,}(\S+)$", said, re.MULTILINE))
    text = (ROOT / "README.md").read_text().replace("−", "-")
    assert printed["predictions"] in text
    for figure, form in (
        ("Brier score", ".4f"),
        ("calibration error (ECE)", ".3f"),
        ("gap (mean forecast − mean label)", "+.3f"),
    ):
        for when in ("before", "after"):
            assert f"{float(printed[f'{figure} {when}']):{form}}" in text
    verdict = " ".join((ROOT / "docs" / "verdict.md").read_text().split("```")[1].split())
    assert verdict in " ".join(said.split())
    assert (tmp_path / "report.html").stat().st_size > 10_000


# The tutorial's script and commands run in their order, in one folder, and print what the page shows


PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["python", "sh", "", "sh", "", "sh"]
    printed: list[str] = []
    for language, code in blocks:
        if language:
            script = code if language == "sh" else f"python - <<'END'\n{code}\nEND"
            printed = [line.rstrip() for line in in_shell(script, tmp_path).splitlines()]
        else:  # lines that the block before has printed, in this order
            places = [printed.index(line) for line in code.splitlines()]
            assert places == sorted(places)
    assert (tmp_path / "report.html").stat().st_size
    assert (tmp_path / "again.csv").stat().st_size


# docs/scale.md: its tables are what its arithmetic prints


SCALE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()


def test_the_tables_are_what_the_arithmetic_prints(capsys: pytest.CaptureFixture[str]) -> None:
    exec(re.findall(r"```python\n(.*?)```", SCALE, re.DOTALL)[0], {})
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in SCALE.splitlines() if line.startswith("| 10^")] == printed


# docs/connectors.md: its commands run on the flights


CONNECTORS = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()


@pytest.mark.nightly
def test_its_commands_run_on_the_flights(tmp_path: Path) -> None:
    (code,) = (
        each for each in re.findall(r"```sh\n(.*?)```", CONNECTORS, re.DOTALL) if "demo --files" in each
    )
    in_shell("\n".join(line for line in code.splitlines() if not line.startswith("pip install")), tmp_path)
    answers, again = pl.read_parquet(tmp_path / "recalibrated.parquet"), pl.read_ipc(tmp_path / "again.arrow")
    assert len(answers) == len(again) == len(pl.read_parquet(tmp_path / "flights" / "predictions.parquet"))
    served = RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    assert again["probability"].to_numpy() == pytest.approx(
        served.predict_many(again["score"].to_numpy()), abs=0
    )


# examples/judge: its commands run, and its simulation has the truth that it says


LLM_JUDGE = (ROOT / "examples" / "judge" / "README.md").read_text()


def judge_said(folder: Path, *, budget: bool) -> str:
    """Run the commands of the page that spend a budget, or the others; return what they print."""
    (folder / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"^```sh\n(.*?)^```", LLM_JUDGE, re.DOTALL | re.MULTILINE)
    return in_shell("\n".join(each for each in blocks if ("budget.py" in each) == budget), folder)


@pytest.mark.slow
def test_a_budget_tells_another_judge(tmp_path: Path) -> None:
    said = judge_said(tmp_path, budget=True).splitlines()
    shown = re.findall(r"^[\d,]+ answers, .*$", LLM_JUDGE, re.MULTILINE)
    assert len(shown) == 2
    assert set(shown) <= set(said)


@pytest.mark.nightly
def test_the_commands_run(tmp_path: Path) -> None:
    said = judge_said(tmp_path, budget=False)
    assert re.search(r"Over 3\d,\d{3} predictions, of which 2,\d{3} are", said)
    for judged, served in (("answers.csv", "recalibrated.csv"), ("pairs.csv", "preferred.csv")):
        truth = pl.read_csv(tmp_path / judged).select(pl.col("id").cast(str), "truth")
        rows = pl.read_csv(tmp_path / served).with_columns(pl.col("id").cast(str)).join(truth, on="id")
        assert len(rows) == 40_000
        known, scores, probabilities = (rows[name].to_numpy() for name in ("truth", "score", "probability"))
        assert np.mean((probabilities - known) ** 2) < 0.5 * np.mean((scores - known) ** 2)
