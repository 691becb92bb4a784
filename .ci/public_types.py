"""Check that pyright knows the type of everything public, by ``basedpyright --verifytypes``.

Internal modules have no underscore, so that pyright counts them, too; mypy checks those, strictly.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.golden.api import MODULES  # noqa: E402  # which is not installed

FOREIGN = {"streamcal.sklearn.StreamingCalibratedClassifier"}
"""What inherits of a package without types: scikit-learn has none."""


def main() -> int:
    """Print what has no known type; return 1 if there is any."""
    # Folders of the package come first: the environment has a folder of its name, with data alone.
    folders = os.pathsep.join([str(ROOT), str(ROOT / "connectors")])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "basedpyright",
            "--verifytypes",
            "streamcal",
            "--ignoreexternal",
            "--outputjson",
        ],
        env=os.environ | {"PYTHONPATH": folders, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    public = set()
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            thing = getattr(module, name)
            made = getattr(thing, "__module__", module.__name__), getattr(thing, "__qualname__", name)
            public |= {f"{module.__name__}.{name}", ".".join(made)}
    checked = [
        symbol
        for symbol in symbols
        if any(symbol["name"] == name or symbol["name"].startswith(f"{name}.") for name in public)
    ]
    unknown = {
        symbol["name"]: symbol for symbol in checked if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    }
    for name in sorted(unknown.keys() - FOREIGN):
        sys.stdout.write(f"{name}: {[each['message'] for each in unknown[name]['diagnostics']]}\n")
    for name in sorted(FOREIGN - unknown.keys()):
        sys.stdout.write(f"{name} has known types now; remove it from FOREIGN\n")
    sys.stdout.write(f"{len(checked)} public symbols, {len(unknown.keys() - FOREIGN)} without a known type\n")
    # So many there are at least: a package that is not found has none.
    return int(unknown.keys() != FOREIGN or len(checked) < 500)


if __name__ == "__main__":
    sys.exit(main())
