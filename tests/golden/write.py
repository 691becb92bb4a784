"""Write the golden files of this version, which every later one must read: ``make golden``.

They may be written anew until the version is released, which is when CHANGELOG.md gets a heading for it.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from streamcal import RecalibrationMap, Recalibrator
from tests.command_line import streamcal
from tests.golden.api import public_api
from tests.golden.made import RUNS, STATES, answers

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def version() -> str:
    """Return the version that pyproject.toml names."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def is_released() -> bool:
    """Return whether the version is released, so that its files may not change."""
    return f"\n## [{version()}]" in (ROOT / "CHANGELOG.md").read_text()


def write(folder: Path) -> None:
    """Write the files of this version into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "api.txt").write_text("".join(line + "\n" for line in public_api()))
    said: dict[str, Any] = {}
    for name, make in STATES.items():
        made = make()
        put(folder / f"{name}.state.gz", made.to_bytes())
        said[name] = {"class": type(made).__name__, "answers": answers(made)}
        if isinstance(made, Recalibrator) and isinstance(made.map, RecalibrationMap):
            certificate = made.certificate
            said[name] |= {"map": made.map.model_dump_json(), "mapped": answers(made.map)}
            said[name] |= {"certificate": certificate and certificate.model_dump_json()}
    put(folder / "states.json.gz", dumped({"states": said}))
    for name, run in RUNS.items():
        with tempfile.TemporaryDirectory() as place:
            here = Path(place)
            outputs = {} if run.many_classes else {"maps": "maps", "alarms": "alarms"}
            rows = run.go(here, run.first(), rejects="rejects", **outputs)
            facts = {"rows": rows} | {output: lines(here / output) for output in ("rejects", *outputs)}
            report = streamcal("report", "--json", here / "store.db").stdout
            with sqlite3.connect(here / "store.db") as store:
                store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            store.close()
            put(folder / f"{name}.db.gz", (here / "store.db").read_bytes())
            facts |= {"report": json.loads(report), "later": run.go(here, run.later())}
        put(folder / f"{name}.run.json.gz", dumped(facts))


def put(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def dumped(facts: Any) -> bytes:
    return json.dumps(facts, indent=0).encode()


def lines(path: Path) -> list[Any]:
    """Return the first lines and the last: of the maps of a run, a few are enough."""
    every = [json.loads(line) for line in path.read_text().splitlines()]
    return every if len(every) < 5 else every[:1] + every[-3:]


def main() -> int:
    if is_released():
        sys.stderr.write(f"{version()} is released, its golden files are fixed: raise the version first\n")
        return 1
    write(HERE / version())
    sys.stdout.write(f"{sum(path.stat().st_size for path in (HERE / version()).iterdir()):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
