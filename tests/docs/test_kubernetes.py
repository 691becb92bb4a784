"""examples/kubernetes: `streamcal serve` takes the options and answers the probes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.serve.servers import Served

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
PARTS = [part for path in FOLDER.glob("*.yaml") for part in yaml.safe_load_all(path.read_text())]
(STATEFUL,) = (part["spec"] for part in PARTS if part["kind"] == "StatefulSet")
(CONTAINER,) = STATEFUL["template"]["spec"]["containers"]
COMMAND, *OPTIONS = CONTAINER["args"]
GIVEN = dict(each.removeprefix("--").partition("=")[::2] for each in OPTIONS)
PROBES = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}


@pytest.mark.slow
def test_the_server_takes_the_options_and_answers_the_probes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    assert COMMAND == "serve"
    swap = {"store": None, "port": None, "host": "127.0.0.1", "token-file": str(token)}
    kept = {name: swap.get(name, value) for name, value in GIVEN.items()}
    more = [
        f"--{name}={value}" if value else f"--{name}" for name, value in kept.items() if value is not None
    ]
    served = Served(tmp_path / "store.db", *more)
    for probe in PROBES.values():
        status, _ = served.ask("GET", probe["path"], headers={"host": "10.0.0.7:8080"})
        assert status == 200, probe
    assert served.ask("GET", "/nothing")[0] in (401, 404)
    status, answer = served.ask(
        "POST",
        "/v1/predictions",
        {"id": "a1", "score": 0.93},
        {
            "content-type": "application/json",
            "authorization": f"Bearer {token.read_text()}",
            "host": "streamcal",
        },
    )
    assert (status, answer["id"]) == (200, "a1")
    assert served.stop()[0] == 0
