"""Texts: many texts side by side in one buffer, hashed and compared with array arithmetic.

A list of a million texts is a million objects; here they are their bytes, where each begins, and how long it
is. Hashes differ between processes as Python's own do, so that nobody can choose texts whose hashes collide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self, overload

import numpy as np
import numpy.typing as npt

__all__ = ["PADDING", "Bytes", "Hashes", "Indices", "Texts", "gathered", "same_bytes"]

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

PADDING: Final = 8
"""So many bytes behind the last text can be read."""

_WORD: Final = 8  # bytes that are taken at a time
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_ODD: Final = np.uint64((hash("streamcal") | 1) & 0xFFFF_FFFF_FFFF_FFFF)
_GOLDEN: Final = np.uint64(0x9E37_79B9_7F4A_7C15)  # 2⁶⁴ by the golden ratio, odd
_HALF, _LESS = np.uint64(32), np.uint64(29)
_LOSSLESS: Final = "surrogatepass"  # a text from Python may hold halves of surrogate pairs


class Texts(Sequence[str | None]):
    """Texts, or None, which is stored as the empty text.

    Parameters
    ----------
    data
        uint8[m + `PADDING`], UTF-8.
    starts, sizes
        int64[n]: where in it each text begins, and of how many bytes it is.
    """

    __slots__ = ("_from", "_hashes", "_listed", "data", "sizes", "starts")

    def __init__(
        self, data: Bytes, starts: Indices, sizes: Indices, listed: list[str | None] | None = None
    ) -> None:
        self.data, self.starts, self.sizes = data, starts, sizes
        self._listed = listed  # the same, if there is a list already …
        self._from: tuple[list[str | None], list[int]] | None = None  # … or this list, at these indices
        self._hashes: Hashes | None = None

    @classmethod
    def of(cls, values: Sequence[str | None]) -> Self:
        """Return texts that are not empty, and None, as one; itself, if it is."""
        if isinstance(values, cls):
            return values
        values = values if isinstance(values, list) else list(values)
        filled: list[str] = values  # type: ignore[assignment]
        try:
            joined = "".join(filled)
        except TypeError:  # None among them
            filled = [value or "" for value in values]
            joined = "".join(filled)
        if joined.isascii():
            sizes = np.fromiter(map(len, filled), np.int64, len(filled))
        else:
            sizes = np.array([len(value.encode(errors=_LOSSLESS)) for value in filled], np.int64)
        data = np.frombuffer(joined.encode(errors=_LOSSLESS) + bytes(PADDING), np.uint8)
        return cls(data, np.cumsum(sizes) - sizes, sizes, values)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> str | None: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> str | Self | None:
        if isinstance(index, slice):
            listed = None if self._listed is None else self._listed[index]
            part = type(self)(self.data, self.starts[index], self.sizes[index], listed)
            part._hashes = None if self._hashes is None else self._hashes[index]
            if self._from is not None:
                part._from = self._from[0], self._from[1][index]
            return part
        if self._listed is not None:
            return self._listed[index]
        start, size = int(self.starts[index]), int(self.sizes[index])
        return self.data[start : start + size].tobytes().decode(errors=_LOSSLESS) if size else None

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.tolist())

    def tolist(self) -> list[str | None]:
        """Return them as objects; not to be changed."""
        if self._listed is None and self._from is not None:
            known, where = self._from
            self._listed, self._from = [known[index] for index in where], None
        if self._listed is None:
            data, sizes = gathered(self)
            ends = np.cumsum(sizes)
            bounds = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
            joined = data.tobytes()
            if joined.isascii():
                text = joined.decode()
                self._listed = [text[start:end] or None for start, end in bounds]
            else:
                self._listed = [joined[start:end].decode(errors=_LOSSLESS) or None for start, end in bounds]
        return self._listed

    def take(self, where: npt.NDArray[np.intp]) -> Self:
        """Return those at some indices."""
        part = type(self)(self.data, self.starts[where], self.sizes[where])
        part._hashes = None if self._hashes is None else self._hashes[where]
        if self._listed is not None:
            part._from = self._listed, where.tolist()
        return part

    def hashes(self) -> Hashes:
        """Return the hash of each, uint64[n]."""
        if self._hashes is None:
            self._hashes = self._hashed()
        return self._hashes

    def _hashed(self) -> Hashes:
        words, sizes = _words(self.data), self.sizes
        found = (sizes + 1).astype(np.uint64) * _ODD
        for offset in range(0, int(sizes.max(initial=0)), _WORD):
            left = sizes - offset
            if offset and int(np.count_nonzero(left > 0)) < len(sizes) // 2:  # few are so long
                some = np.flatnonzero(left > 0)
                taken = words[self.starts[some] + offset] & _MASKS[np.minimum(left[some], _WORD)]
                found[some] = _mixed(found[some], taken)
                continue
            if int(left.min()) >= _WORD:
                found = _mixed(found, words[self.starts + offset])
                continue
            left = np.clip(left, 0, _WORD)
            mixed = _mixed(found, words[np.where(left > 0, self.starts + offset, 0)] & _MASKS[left])
            found = np.where(left > 0, mixed, found)
        found ^= found >> _HALF
        found *= _GOLDEN
        return found ^ found >> _HALF

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return parts one behind the other."""
        if len(parts) == 1:
            return parts[0]
        packed = [gathered(part) for part in parts]
        sizes = np.concatenate([sizes for _, sizes in packed])
        data = np.concatenate([*(data for data, _ in packed), np.zeros(PADDING, np.uint8)])
        listed = None
        if all(part._listed is not None for part in parts):
            listed = [each for part in parts for each in part._listed or ()]
        return cls(data, np.cumsum(sizes) - sizes, sizes, listed)


def gathered(texts: Texts) -> tuple[Bytes, Indices]:
    """Return the bytes of texts one behind the other, without padding, and their sizes."""
    starts, sizes, data = texts.starts, texts.sizes, texts.data
    if not len(sizes):
        return np.zeros(0, np.uint8), sizes
    if bool((starts[1:] == starts[:-1] + sizes[:-1]).all()):
        return data[int(starts[0]) : int(starts[-1] + sizes[-1])], sizes
    ends = np.cumsum(sizes)
    where = np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)
    return data[where], sizes


def same_bytes(
    one: Bytes, ones: Indices, other: Bytes, others: Indices, sizes: Indices
) -> npt.NDArray[np.bool_]:
    """Return whether texts of the same sizes in two buffers are the same, bool[n]."""
    same = np.ones(len(sizes), np.bool_)
    mine, theirs = _words(one), _words(other)
    for offset in range(0, int(sizes.max(initial=0)), _WORD):
        some = (same & (sizes > offset)).nonzero()[0]
        unlike = mine[ones[some] + offset] ^ theirs[others[some] + offset]
        same[some[unlike & _MASKS[np.minimum(sizes[some] - offset, _WORD)] != 0]] = False
    return same


def _words(data: Bytes) -> npt.NDArray[np.uint64]:
    """Return the eight bytes from every byte on as a number."""
    return np.ndarray((len(data) - _WORD + 1,), "<u8", data, 0, (1,))


def _mixed(found: Hashes, word: npt.NDArray[np.uint64]) -> Hashes:
    mixed: Hashes = (found ^ word) * _ODD
    return mixed ^ mixed >> _LESS
