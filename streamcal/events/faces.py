"""Words for what a user can change: those of the command, of Python, and of HTTP."""

from __future__ import annotations

from typing import Final, NamedTuple


class Face(NamedTuple):
    """Words of one way to use the package, for messages that say what to do."""

    rejects: str = "--rejects FILE keeps each with its reason."
    exchanged: str = "and that --events and --labels are not exchanged"
    before: str = "before them in their file"
    sort: str = "Sort the files by time."
    calibration: str = "with --calibration"
    label: str = "with --label NAME"
    positive: str = "with --positive VALUE"
    classes: str = "with --classes NAME,NAME"
    time: str = (
        'with --time, or that of labels alone in [columns.labels] time; [kafka] time = "record" takes those'
        " of the records of a topic"
    )
    line: str = "line"
    nothing_learned: str = (
        " Nothing was learned from this micro-batch; if others were committed before, start with a new store"
    )
    mode: str = '[recalibrator] mode = "auto"'
    join: str = "[join] {}"
    missing_labels: str = '[join] missing_labels = "negative"'


COMMAND: Final = Face()
PYTHON: Final = Face(
    rejects="The attribute `rejects` has each with its reason.",
    exchanged="and that the two frames are not exchanged",
    before="before them in their frame",
    sort="Sort the frames by time.",
    calibration="as calibration",
    label='with columns={"label": NAME}',
    positive='with columns={"positive": VALUE}',
    classes='with columns={"classes": […]}',
    time='with columns={"time": NAME}, or that of labels alone with columns={"labels": {"time": NAME}}',
    line="row",
    nothing_learned="",
    mode='mode="auto"',
    join='join={{"{}": …}}',
    missing_labels='join={"missing_labels": "negative"}',
)
HTTP: Final = Face(
    rejects="The answer to each says why.",
    exchanged="and send a label when its prediction was answered",
    before="of their kind that was sent before",
    sort="Send predictions, and labels, in the order of their times.",
)
