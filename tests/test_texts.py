"""Texts side by side: the same as a list of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.texts import Texts, gathered, same_bytes

IDS = st.none() | st.text(min_size=1, max_size=40) | st.sampled_from(["a", "b" * 8, "c" * 9, "é" * 12])


@settings(max_examples=200, deadline=None)
@given(st.lists(IDS, max_size=12), st.data())
def test_they_are_the_list_whatever_is_taken_of_them(values: list[str | None], data: st.DataObject) -> None:
    texts = Texts.of(values)
    packed = Texts(texts.data, texts.starts, texts.sizes)  # without the list that it was made of
    assert packed.tolist() == list(texts) == values == [packed[index] for index in range(len(values))]
    where = np.array(data.draw(st.permutations(range(len(values)))), np.intp)
    start = data.draw(st.integers(0, len(values)))
    for each in (texts, packed):
        part = each.take(where)[start:]
        wanted = [values[index] for index in where[start:]]
        assert part.tolist() == wanted
        assert b"".join((value or "").encode() for value in wanted) == gathered(part)[0].tobytes()
        assert Texts.joined([part, each]).tolist() == wanted + values


@settings(max_examples=200, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=8), st.lists(IDS, min_size=1, max_size=8))
def test_equal_texts_have_equal_hashes_wherever_they_lie(
    one: list[str | None], other: list[str | None]
) -> None:
    ones, others = Texts.of(one), Texts.of(["x" * 5, *other])[1:]
    hashes = dict(zip(one, ones.hashes().tolist(), strict=True))
    for id_, value in zip(other, others.hashes().tolist(), strict=True):
        assert hashes.setdefault(id_, value) == value
    assert len(set(hashes.values())) == len(hashes)
    for index, id_ in enumerate(other):
        alike = np.flatnonzero(ones.sizes == others.sizes[index])
        theirs = np.full(len(alike), others.starts[index])
        same = same_bytes(ones.data, ones.starts[alike], others.data, theirs, ones.sizes[alike])
        assert same.tolist() == [one[at] == id_ for at in alike]
