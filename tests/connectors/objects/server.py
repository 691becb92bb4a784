"""A real server of S3 for the tests: S3Proxy, which keeps objects as files of a directory.

Its jars come from Maven Central through ``pom.xml``, once, into ``.cache/s3proxy/`` of the repository: 26 MB,
half a minute. A start takes 2 to 5 seconds and 150 MB.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.maven import fetched

__all__ = ["KEY", "SECRET", "fetch", "served"]

HERE: Final = Path(__file__).resolve().parent
KEY: Final = "key-of-tests"
SECRET: Final = "hunter2-correct-horse"  # of a server on loopback
_START_SECONDS: Final = 60.0


def fetch() -> Path:
    """Bring the jars unless they are there, and return their directory; see `tests.maven.fetched`."""
    return fetched(HERE / "pom.xml", "s3proxy")


@contextmanager
def served(jars: Path) -> Iterator[str]:
    """Start a server in an empty directory of its own; yield its endpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="streamcal-s3-") as folder:
        data, settings, log = Path(folder, "data"), Path(folder, "settings"), Path(folder, "log")
        data.mkdir()
        settings.write_text(
            f"s3proxy.endpoint=http://127.0.0.1:{port}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={KEY}\n"
            f"s3proxy.credential={SECRET}\n"
            "s3proxy.ignore-unknown-headers=true\n"  # the checksums that newer clients send
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={data}\n"
        )
        # It lives for seconds: an optimising compiler would take longer than it saves.
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlogback.configurationFile={HERE / 'logback.xml'}"]
        command += ["-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(settings)]
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
            try:
                _wait(server, port, log)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.kill()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise RuntimeError(f"S3Proxy did not start: {log.read_text()[-2000:]}")
