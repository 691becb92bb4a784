"""Prometheus beside a run: it scrapes the metrics, and evaluates the rules of examples/grafana.

Needs prometheus and promtool on the path (Debian: ``apt-get install prometheus``).
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from socket import create_server
from typing import Any

RULES = Path(__file__).parents[1] / "grafana" / "alerts.yaml"
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: streamcal
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def ask(url: str) -> Any:
    """Return the data of an answer of Prometheus; nothing while it is starting."""
    try:
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]
    except OSError:
        return {"result": [], "groups": []}


def main() -> None:
    metrics, api = free_port(), free_port()
    with Path("events.jsonl").open("w") as file:
        for i in range(2_000):
            print(json.dumps({"score": i % 100 / 100, "label": i % 2, "time": 1.7e9 + i}), file=file)
    Path("prometheus.yml").write_text(CONFIG.format(port=metrics, rules=RULES))
    tested = RULES.with_name("alerts_test.yaml")
    for check in (
        ["check", "config", "prometheus.yml"],
        ["check", "rules", RULES],
        ["test", "rules", tested],
    ):
        subprocess.run(["promtool", *check], check=True, stdout=subprocess.DEVNULL)
    run = ["streamcal", "run", "--events", "events.jsonl", "--output", "rows.jsonl", "--store", "store.db"]
    run += ["--follow", "--metrics", str(metrics)]
    prometheus = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{api}"]
    with ExitStack() as stack:
        for command in (run, [*prometheus, "--storage.tsdb.path=data"]):
            log = stack.enter_context(Path(f"{command[0]}.log").open("w"))
            stack.callback(stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log)).terminate)
        query = urllib.parse.quote("streamcal_labels_total == 2000")
        deadline = time.monotonic() + 60
        while True:
            scraped = ask(f"http://127.0.0.1:{api}/api/v1/query?query={query}")["result"]
            groups = ask(f"http://127.0.0.1:{api}/api/v1/rules")["groups"]
            health = [rule["health"] for group in groups for rule in group["rules"]]
            if scraped and set(health) == {"ok"}:
                break
            assert time.monotonic() < deadline, f"within a minute: scraped {scraped}, rules {health}"
            time.sleep(0.1)
    print(f"2,000 labels scraped; {len(health)} rules checked, tested and evaluated")


if __name__ == "__main__":
    main()
