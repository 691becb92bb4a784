"""The dashboard and the alert rules of examples/grafana name only metrics and labels that a run exposes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from streamcal.monitor.build import build_status
from streamcal.monitor.metrics import RunMetrics
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.command_line import synthetic

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples" / "grafana"
OF_PROMETHEUS = {"instance", "job"}

Exposed = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def delayed(tmp_path_factory: pytest.TempPathFactory) -> Exposed:
    """Return the values of each label of each metric that a run with a source has delayed."""
    source, events, labels = synthetic(tmp_path_factory.mktemp("run"), 6000)  # a window of 5,000 is full
    connectors = Connectors()
    calibration = connectors.source(str(source), SourceOptions(domain="source"))
    deployment = [connectors.source(str(each)) for each in (events, labels)]
    metrics = RunMetrics([calibration, *deployment])
    pipeline = Pipeline()

    def after(outcome: Outcome, seconds: float) -> None:
        metrics.batch(seconds, outcome)
        metrics.update(build_status(pipeline, claims=False))

    ticks = iter(range(10**9))
    inputs = Inputs([calibration], deployment)
    Runner(pipeline, inputs, Outputs(NullSink()), None, clock=lambda: next(ticks) * 0.01, after=after).run()
    found: Exposed = {}
    for family in metrics.collect():
        for sample in family.samples:
            values = found.setdefault(sample.name, defaultdict(set))
            for label, value in sample.labels.items():
                values[label].add(value)
    return found


def wrong(expression: str, delayed: Exposed) -> list[str]:
    """Return what an expression names that is not delayed."""
    found = []
    for name, _, matchers in re.findall(r"\b(streamcal_\w+)(\{([^}]*)\})?", expression):
        if name not in delayed:
            found.append(name)
            continue
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers):
            values = delayed[name].get(label, {value} if label in OF_PROMETHEUS else None)
            if values is None or (operator == "=" and value not in values):
                found.append(f'{name}{{{label}{operator}"{value}"}}')
    known = set().union(*delayed.values()) | OF_PROMETHEUS
    named = re.findall(r"\b(?:by|on|ignoring|without) ?\(([^)]*)\)", expression)
    found += [each for each in re.split(r"[ ,]+", ",".join(named)) if each and each not in known]
    return found


def test_every_expression_of_the_dashboard(delayed: Exposed) -> None:
    dashboard = json.loads((FOLDER / "streamcal.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in panels)
    for target in (each for panel in panels for each in panel["targets"]):
        assert not wrong(target["expr"], delayed), target["expr"]
        legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        by = re.search(r"\bby \(([^)]*)\)", target["expr"])
        metric = re.findall(r"streamcal_\w+", target["expr"])[0]
        kept = set(re.split(r"[ ,]+", by[1])) if by else set(delayed[metric]) | OF_PROMETHEUS
        assert legend <= kept, target
    for text in json.dumps(dashboard["templating"]), json.dumps(dashboard["annotations"]):
        assert not wrong(text.replace('\\"', '"'), delayed)
    names = [each["name"] for each in dashboard["templating"]["list"]]
    assert set(re.findall(r"\$(?!_)\{?(\w+)", json.dumps(panels))) <= set(names)


def test_every_expression_of_the_alerts(delayed: Exposed) -> None:
    text = (FOLDER / "alerts.yaml").read_text()
    assert not wrong(text, delayed)
    known = set().union(*delayed.values()) | OF_PROMETHEUS
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= known
    alerts = re.findall(r"- alert: (\w+)", text)
    readme = (FOLDER / "README.md").read_text()
    assert alerts
    assert sorted(alerts) == sorted(set(re.findall(r"`(Streamcal\w+)`", readme)))
