"""Texts side by side: the same as a list of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.string_column import StringColumn, gathered

IDS = st.none() | st.text(min_size=1, max_size=40) | st.sampled_from(["a", "b" * 8, "c" * 9, "é" * 12])


@settings(max_examples=200, deadline=None)
@given(st.lists(IDS, max_size=12), st.data())
def test_they_are_the_list_whatever_is_taken_of_them(values: list[str | None], data: st.DataObject) -> None:
    texts = StringColumn.of(values)
    packed = StringColumn(texts.data, texts.starts, texts.sizes)  # without the list that it was made of
    assert packed.tolist() == list(texts) == values == [packed[index] for index in range(len(values))]
    where = np.array(data.draw(st.permutations(range(len(values)))), np.intp)
    start = data.draw(st.integers(0, len(values)))
    for each in (texts, packed):
        part = each.take(where)[start:]
        wanted = [values[index] for index in where[start:]]
        assert part.tolist() == wanted
        assert b"".join((value or "").encode() for value in wanted) == gathered(part)[0].tobytes()
        assert StringColumn.joined([part, each]).tolist() == wanted + values
