"""Reasons by kind: without ids and numbers, and no more kinds than fit a state."""

from __future__ import annotations

import pytest

from streamcal.run.outcome import MOST_KINDS, OTHER, count_reasons, kind_of


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("a label must equal 0 or 1, got 2", "a label must equal 0 or 1"),
        (
            'late label: the prediction with id "o\'clock" has expired',
            "late label: the prediction with id … has expired",
        ),
        (
            "too many keys: key 'b' would be one more than the limit of 5",
            "too many keys: key … would be one more than the limit of …",
        ),
        ("invalid UTF-8: invalid start byte at byte 17", "invalid UTF-8: invalid start byte at byte …"),
        ("the header has 3 columns, the row 12", "the header has … columns, the row …"),
        (
            "a time must be seconds since the epoch or an ISO 8601 date and time, got 'soon'",
            "a time must be seconds since the epoch or an ISO 8601 date and time",
        ),
        ("expired by 2013-02-02 00:00:01 UTC, with 12 others", "expired by …, with … others"),
        ("the label's id isn't there", "the label's id isn't there"),
    ],
)
def test_what_varies_is_left_out(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind
    assert kind_of(kind) == kind


def test_the_number_of_kinds_is_bounded() -> None:
    counts: dict[str, int] = {}
    count_reasons(counts, ("x" * length for length in range(1, 200)))
    assert len(counts) == MOST_KINDS + 1
    assert counts[OTHER] == 199 - MOST_KINDS
    assert max(map(len, counts)) < 200
