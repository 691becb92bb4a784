"""examples/serve: the commands and settings of its compose file, without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serve.servers import STREAMCAL

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve"
SERVICES = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def command(service: str) -> list[str]:
    """Return what a service runs once pip has installed what it needs."""
    shell, option, script = shlex.split(SERVICES[service]["command"])
    assert (shell, option) == ("sh", "-c")
    return shlex.split(re.fullmatch(r"pip install .*? && exec (.*)", script)[1])  # type: ignore[index]


def post(url: str, body: dict[str, Any]) -> Any:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


def test_the_model_asks_streamcal(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of the test"[:1] * 32)
    ours, its = free_port(), free_port()
    program, *arguments = command("streamcal")
    assert program == "streamcal"
    swap = {"/data/streamcal.db": str(tmp_path / "store.db"), "8080": ours, "0.0.0.0": "127.0.0.1"}
    swap |= {"/run/secrets/token": str(tmp_path / "token")}
    program, script = command("model")
    assert (program, script) == ("python", "/app/model.py")
    settings = SERVICES["model"]["environment"]
    assert settings["STREAMCAL_URL"] == "http://streamcal:8080"
    swap |= {settings["STREAMCAL_URL"]: f"http://127.0.0.1:{ours}", "8000": its}
    settings = {name: swap[value] for name, value in settings.items()}
    served = subprocess.Popen([*STREAMCAL, *(swap.get(each, each) for each in arguments)])
    model = subprocess.Popen(
        [sys.executable, EXAMPLE / "model.py"], env=os.environ | settings, stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{ours}/readyz")
                break
            except OSError:
                time.sleep(0.1)
        parcel = {"id": "p1", "kilometres": 900, "express": False, "country": "NO"}
        first = post(f"http://127.0.0.1:{its}/predict", parcel)
        assert first == post(f"http://127.0.0.1:{its}/predict", parcel)
        assert first["probability"] == first["score"]  # of the first map
        assert post(f"http://127.0.0.1:{its}/delivered", {"id": "p1", "late": True})["outcome"] == "joined"
        served.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0
        assert post(f"http://127.0.0.1:{its}/predict", parcel)["probability"] == first["score"]  # its own
    finally:
        for each in (served, model):
            each.kill()
            each.wait()
