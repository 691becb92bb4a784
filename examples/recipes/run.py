"""Run all recipes, each in a folder of its own, and print what each printed last; `make recipes` calls it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = sorted({*HERE.glob("with_*.py"), HERE / "check_kserve.py"} - {HERE / "with_kserve.py"})
QUIET = {  # no news to the makers of the packages
    "BENTOML_DO_NOT_TRACK": "true",
    "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    "DO_NOT_TRACK": "1",
    "FEAST_USAGE": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def main() -> int:
    """Return 1 if a recipe failed."""
    failed = 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for script in SCRIPTS:
        if script.stem == "with_prometheus" and shutil.which("promtool") is None:
            print(f"{script.name:18} skipped: needs prometheus and promtool on the path", flush=True)
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, script],
                cwd=folder,
                env=os.environ | QUIET | {"PATH": path, "HOME": folder},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            failed += 1
            print(done.stdout, done.stderr, sep="\n")
        last = "failed" if done.returncode else done.stdout.strip().splitlines()[-1]
        print(f"{script.name:18} {last} ({time.monotonic() - start:.0f} s)", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
