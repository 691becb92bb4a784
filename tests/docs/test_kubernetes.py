"""examples/kubernetes: options, ports, probes and paths are those of `streamcal serve` and of the image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from streamcal.serve import server
from tests.serve.servers import Served

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: dict[str, dict[str, Any]] = {
    each["kind"]: each
    for name in KUSTOMIZATION["resources"]
    for each in yaml.safe_load_all((FOLDER / name).read_text())
}
STATEFUL = OBJECTS["StatefulSet"]["spec"]
POD = STATEFUL["template"]["spec"]
(CONTAINER,) = POD["containers"]
COMMAND, *OPTIONS = CONTAINER["args"]
GIVEN = dict(each.removeprefix("--").partition("=")[::2] for each in OPTIONS)
PROBES = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}


def test_every_file_is_named() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(KUSTOMIZATION["resources"]) == sorted(files)


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


def test_the_ports_are_one() -> None:
    (port,) = CONTAINER["ports"]
    assert GIVEN["port"] == str(port["containerPort"])
    assert GIVEN["host"] == "0.0.0.0"
    (of_service,) = OBJECTS["Service"]["spec"]["ports"]
    assert {of_service["targetPort"], *(probe["port"] for probe in PROBES.values())} == {port["name"]}
    assert STATEFUL["serviceName"] == OBJECTS["Service"]["metadata"]["name"]


def test_the_store_is_on_the_volume_and_the_token_is_the_secret() -> None:
    places = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    (claim,) = STATEFUL["volumeClaimTemplates"]
    assert str(PurePosixPath(GIVEN["store"]).parent) == places[claim["metadata"]["name"]]
    (volume,) = POD["volumes"]
    (secret,) = KUSTOMIZATION["secretGenerator"]
    assert volume["secret"]["secretName"] == secret["name"]
    assert [GIVEN["token-file"]] == [f"{places[volume['name']]}/{file}" for file in secret["files"]]


def test_one_pod_writes_a_store_and_has_time_to_end() -> None:
    assert STATEFUL["replicas"] == 1
    assert POD["terminationGracePeriodSeconds"] > server._STOP_SECONDS


def test_it_is_the_image_and_its_user() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert CONTAINER["image"] == f"streamcal:{project['version']}"
    dockerfile = (ROOT / "Dockerfile").read_text()
    user, group = re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)[-1]
    security = POD["securityContext"]
    assert security["runAsNonRoot"]
    assert (str(security["runAsUser"]), str(security["runAsGroup"])) == (user, group)
    assert security["fsGroup"] == security["runAsGroup"]
    assert 'ENTRYPOINT ["streamcal"]' in dockerfile
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
