"""``python -m benchmarks.postgres``: the query of streamcal.sql on a PostgreSQL that it starts and ends.

It needs the programs of the server (``apt install postgresql``), and as root the user ``postgres``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from streamcal.sql import query
from tests.spark.maps import EXACT, LARGEST_DIFFERENCE, LINEAR, REFUSED, bits, scores_for


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
            for title, recalibration in (EXACT | LINEAR).items():
                scores = scores_for(recalibration)
                given = [
                    *map(repr, scores.tolist()),
                    *("null" if each is None else repr(each) for each in REFUSED),
                ]
                rows = ",".join(f"({i},'{each}'::float8)" for i, each in enumerate(given)).replace(
                    "'null'", "null"
                )
                asked = (
                    "create temporary table predictions (i int, score float8);"  # noqa: S608
                    f"insert into predictions values {rows};"
                    f"select probability from ({query(recalibration, 'postgres')}) as q order by i;"
                )
                printed = call(
                    "psql", "-h", name, "-U", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1", stdin=asked
                )
                lines = printed.split("\n")[: len(given)]
                assert lines[len(scores) :] == [""] * len(REFUSED), title
                answers = np.array(lines[: len(scores)], np.float64)
                wanted = recalibration.predict_many(scores)
                if title in EXACT:
                    np.testing.assert_array_equal(bits(answers), bits(wanted), title)
                largest = np.abs(answers - wanted).max()
                assert largest <= LARGEST_DIFFERENCE, title
                print(f"{title}: {len(scores)} scores, largest difference {largest:.1e}")
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "stop")


if __name__ == "__main__":
    main()
