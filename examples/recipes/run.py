"""Run all recipes, each in a folder of its own, and print what each printed last; `make recipes` calls it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "BENTOML_DO_NOT_TRACK": "true", "DO_NOT_TRACK": "1"}
ENVIRONMENT |= {"FEAST_USAGE": "False", "DBT_SEND_ANONYMOUS_USAGE_STATS": "False"}


def main() -> int:
    failed = 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for script in sorted([*HERE.glob("with_*.py"), HERE / "check_kserve.py"]):
        if script.name == "with_kserve.py":  # a server; the other one checks it
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            home = {"PATH": path, "HOME": folder, "PYTHONPATH": str(HERE)}
            done = subprocess.run(
                [sys.executable, script],
                cwd=folder,
                env=os.environ | ENVIRONMENT | home,
                capture_output=True,
                text=True,
                check=False,
            )
        failed += done.returncode != 0
        said = done.stdout if done.returncode == 0 else f"{done.stdout}\n{done.stderr}\nfailed"
        lines = said.strip().splitlines() if done.returncode == 0 else [said]
        print(f"{script.stem:16} {lines[-1]} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
