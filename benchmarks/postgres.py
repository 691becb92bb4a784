"""``python -m benchmarks.postgres``: the queries of streamcal.sql on a PostgreSQL that it starts and ends.

It needs the programs of the server (``apt install postgresql``), and as root the user ``postgres``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamcal.base.values import Floats
from streamcal.sql import query
from tests.spark.maps import EXACT, LARGEST_DIFFERENCE, LINEAR, REFUSED, SAME, scores_for


def main() -> None:
    found = shutil.which("initdb") or max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)
    if found is None:
        sys.exit("initdb was not found: apt install postgresql")
    programs = Path(found).resolve().parent
    as_user = (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    )
    with tempfile.TemporaryDirectory() as name:
        if as_user:
            shutil.chown(name, "postgres")
        data = f"{name}/data"

        def call(program: str, *arguments: str, stdin: str | None = None) -> str:
            path = programs / program
            command = [*as_user, str(path) if path.exists() else program, *arguments]
            done = subprocess.run(  # noqa: S603
                command, input=stdin, capture_output=True, text=True, check=False, cwd=name
            )
            if done.returncode:
                sys.exit(f"{program}: {done.stderr}")
            return done.stdout

        call("initdb", "--auth=trust", "--username=postgres", "-D", data)
        call("pg_ctl", "-D", data, "-w", "-o", f"-k {name} -h ''", "-l", f"{name}/log", "start")
        try:

            def answers(text: str, columns: Sequence[str], rows: Sequence[Sequence[float | None]]) -> Floats:
                """Return what a query finds in a table of rows of numbers; −1 for NULL."""
                quoted = ", ".join('"' + name.replace('"', '""') + '" float8' for name in columns)
                lines = (
                    "\t".join([str(i), *("\\N" if each is None else repr(each) for each in row)])
                    for i, row in enumerate(rows)
                )
                asked = [
                    f"create temporary table predictions (id int, {quoted});",
                    "copy predictions from stdin;",
                ]
                asked += [*lines, "\\.", f"copy ({text} order by id) to stdout;"]
                options = ("-h", name, "-U", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1")
                printed = call("psql", *options, stdin="\n".join(asked) + "\n")
                found = [line.replace("\\N", "-1").split("\t") for line in printed.splitlines()]
                return np.array(found, np.float64)

            for title, recalibration in (EXACT | LINEAR).items():
                scores = scores_for(recalibration)
                rows = [(score,) for score in (*scores.tolist(), *REFUSED)]
                found = answers(query(recalibration, "postgres"), ["score"], rows)[:, -1]
                assert (found[len(scores) :] == -1.0).all(), title
                wanted = recalibration.predict_many(scores)
                if title in EXACT:
                    np.testing.assert_allclose(found[: len(scores)], wanted, err_msg=title, **SAME)
                largest = np.abs(found[: len(scores)] - wanted).max()
                assert largest <= LARGEST_DIFFERENCE, title
                print(f"{title}: {len(scores)} scores, largest difference {largest:.1e}")
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "stop")


if __name__ == "__main__":
    main()
