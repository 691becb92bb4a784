"""examples/recipes: each is a page at most, names public API and real options only, and runs."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.command_line import streamcal

FOLDER = Path(__file__).parents[2] / "examples" / "recipes"
SCRIPTS = sorted([*FOLDER.glob("with_*.py"), FOLDER / "check_kserve.py"])
PUBLIC = {
    "streamcal",
    *(f"streamcal.{name}" for name in ("onnx", "river", "sklearn", "testing", "run.ports")),
}
PACKAGES = {"dbt": "dbt-core", "google": "protobuf"}
"""Names of packages on the index where they are not those of their modules."""

each_script = pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])


def imported(script: Path) -> list[tuple[str, str | None]]:
    """Return modules with the names imported from them; None: the module itself."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
    return found


def third_party(script: Path) -> set[str]:
    tops = {module.split(".")[0] for module, _ in imported(script)}
    return tops - sys.stdlib_module_names - {"streamcal", *(path.stem for path in SCRIPTS)}


@each_script
def test_it_is_a_page_and_is_explained(script: Path) -> None:
    text = script.read_text()
    compile(text, script, "exec")
    assert len(text.splitlines()) <= (100 if script.stem.startswith("check") else 80)
    assert f"[{script.name}]({script.name})" in (FOLDER / "README.md").read_text()


@each_script
def test_it_names_public_api_only(script: Path) -> None:
    ours = [(module, name) for module, name in imported(script) if module.split(".")[0] == "streamcal"]
    for module, name in ours:
        assert module in PUBLIC, f"{script.name}: {module} is internal"
        there = import_module(module)
        assert name is None or (name in there.__all__ and hasattr(there, name)), f"{script.name}: {name}"


@each_script
def test_what_it_imports_is_pinned(script: Path) -> None:
    pinned = set(re.findall(r"^([\w.-]+)==", (FOLDER / "requirements.txt").read_text(), re.MULTILINE))
    assert {PACKAGES.get(name, name) for name in third_party(script)} <= pinned


@each_script
def test_the_options_that_it_calls_exist(script: Path) -> None:
    lists = [
        [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.List)
    ]
    commands = [each[1] for each in lists if each[:1] == ["streamcal"]]
    options = {item for each in lists for item in each if item.startswith("--") and "=" not in item}
    if not commands:
        return
    helped = "".join(streamcal(command, "--help").stdout for command in commands)
    foreign = {"--quiet", "--project-dir", "--profiles-dir"}  # of dbt
    assert options - foreign <= set(re.findall(r"--[\w-]+", helped)), script.name


@pytest.fixture(scope="module")
def kserve() -> ModuleType:
    spec = importlib.util.spec_from_file_location("with_kserve", FOLDER / "with_kserve.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HEADERS = {  # of the response in KServe's documentation of its logger
    "Ce-Specversion": "1.0",
    "Ce-Type": "org.kubeflow.serving.inference.response",
    "Ce-Source": "http://localhost:9081/",
    "Ce-Id": "0009174a-24a8-4603-b098-09c8799950e9",
    "Ce-Time": "2021-04-10T00:23:26.080736102Z",
    "Ce-Inferenceservicename": "sklearn-iris",
    "Ce-Namespace": "default",
    "Ce-Endpoint": "",
    "Content-Type": "application/json",
}


def test_the_documented_events_of_kserve_become_predictions(kserve: ModuleType, tmp_path: Path) -> None:
    request = HEADERS | {"Ce-Type": "org.kubeflow.serving.inference.request"}
    assert not list(kserve.events(request, b'{"instances": [[6.8, 2.8, 4.8, 1.4], [6.0, 3.4, 4.5, 1.6]]}'))
    rows = list(kserve.events(HEADERS, b'{"predictions": [1, 1]}'))
    id_, time = HEADERS["Ce-Id"], HEADERS["Ce-Time"]
    assert rows == [
        {"id": f"{id_}:{place}", "score": 1, "time": time, "key": "sklearn-iris"} for place in (0, 1)
    ]
    events, out = tmp_path / "events.jsonl", tmp_path / "rows.jsonl"
    events.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = streamcal("run", "--events", events, "--output", out, "--strict")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("body", "scores"),
    [
        ({"predictions": [0.25]}, [0.25]),
        ({"predictions": [[0.75, 0.25], [0.5, 0.5]]}, [0.25, 0.5]),
        ({"outputs": [{"name": "p", "shape": [2], "data": [0.1, 0.2]}]}, [0.1, 0.2]),
        ({"outputs": [{"name": "p", "shape": [2, 2], "data": [0.9, 0.1, 0.8, 0.2]}]}, [0.1, 0.2]),
        ({"outputs": [{"name": "p", "shape": [1, 2], "data": [[0.9, 0.1]]}]}, [0.1]),
    ],
)
def test_responses_of_both_protocols(kserve: ModuleType, body: object, scores: list[float]) -> None:
    found = list(kserve.events(HEADERS, json.dumps(body).encode()))
    assert [each["score"] for each in found] == scores
    ids = [each["id"] for each in found]
    assert len(set(ids)) == len(scores)
    assert (ids == [HEADERS["Ce-Id"]]) == (len(scores) == 1)
