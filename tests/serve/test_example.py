"""examples/serve: the commands and settings of its compose file, without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forks import Fork

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve"
SERVICES = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]


def command(service: str) -> list[str]:
    """Return what a service runs once pip has installed what it needs."""
    shell, option, script = shlex.split(SERVICES[service]["command"])
    assert (shell, option) == ("sh", "-c")
    return shlex.split(re.fullmatch(r"pip install .*? && exec (.*)", script)[1])


def post(url: str, body: dict[str, Any]) -> Any:
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as answer:
        return json.load(answer)


def url_of(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until a server answers at the address that it chose and wrote into its log; return the address."""
    while process.poll() is None:
        try:
            url = re.findall(r"(?:listening at|running on) (http://[\d.]+:\d+)", log.read_text())[0]
            with urllib.request.urlopen(f"{url}/readyz", timeout=60):
                return str(url)
        except urllib.error.HTTPError as error:
            if error.code == 404:  # the model has no such path, but it answers
                return str(url)
        except (IndexError, OSError):
            pass
        time.sleep(0.05)
    raise RuntimeError(f"no server: {log.read_text()}")


def test_the_model_asks_streamcal(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of the test"[:1] * 32)
    (tmp_path / "token").chmod(0o600)
    program, *arguments = command("streamcal")
    assert program == "streamcal"
    swap = {"/data/streamcal.db": str(tmp_path / "store.db"), "8080": "0", "0.0.0.0": "127.0.0.1"}
    swap |= {"/run/secrets/token": str(tmp_path / "token")}
    program, script = command("model")
    assert (program, script) == ("python", "/app/model.py")
    settings = SERVICES["model"]["environment"]
    assert settings["STREAMCAL_URL"] == "http://streamcal:8080"
    started = []
    try:
        with (tmp_path / "served.log").open("wb") as log:
            served = Fork([swap.get(each, each) for each in arguments], stderr=log)
        started.append(served)
        swap |= {"http://streamcal:8080": url_of(served, tmp_path / "served.log"), "8000": "0"}
        environment = os.environ | {name: swap[value] for name, value in settings.items()}
        environment["STREAMCAL_TIMEOUT"] = "60"
        with (tmp_path / "model.log").open("wb") as log:
            model = subprocess.Popen(
                [sys.executable, EXAMPLE / "model.py"], env=environment, stdout=subprocess.DEVNULL, stderr=log
            )
        started.append(model)
        model_url = url_of(model, tmp_path / "model.log")
        parcel = {"id": "p1", "kilometres": 900, "express": False, "country": "NO"}
        first = post(f"{model_url}/predict", parcel)
        assert first == post(f"{model_url}/predict", parcel)
        assert first["probability"] == first["score"]  # of the first map
        assert post(f"{model_url}/delivered", {"id": "p1", "late": True})["outcome"] == "joined"
        served.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0
        assert post(f"{model_url}/predict", parcel)["probability"] == first["score"]  # its own
    finally:
        for each in started:
            each.kill()
            each.wait()
