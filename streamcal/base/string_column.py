"""StringColumn: many texts side by side in one buffer.

A list of a million texts is a million objects; here they are their bytes, where each begins, and how long it
is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self, overload

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Bytes, Counts

PADDING: Final = 8
"""Bytes behind the last text that can be read."""

_SPACE, _TILDE = b" ~"  # the first and the last printable character
_LOSSLESS: Final = "surrogatepass"  # a text from Python may hold halves of surrogate pairs


class StringColumn(Sequence[str | None]):
    """Texts, or None, which is stored as the empty text.

    Parameters
    ----------
    data
        uint8[m + `PADDING`], UTF-8.
    starts, sizes
        int64[n]: where in it each text begins, and of how many bytes it is.
    """

    __slots__ = ("_listed", "data", "sizes", "starts")

    def __init__(
        self, data: Bytes, starts: Counts, sizes: Counts, listed: list[str | None] | None = None
    ) -> None:
        self.data, self.starts, self.sizes = data, starts, sizes
        self._listed = listed  # the same, if there is a list already

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
            return type(self)(self.data, self.starts[index], self.sizes[index], listed)
        if self._listed is not None:
            return self._listed[index]
        start, size = int(self.starts[index]), int(self.sizes[index])
        return self.data[start : start + size].tobytes().decode(errors=_LOSSLESS) if size else None

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.tolist())

    def tolist(self) -> list[str | None]:
        """Return them as objects; not to be changed."""
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
        return type(self)(self.data, self.starts[where], self.sizes[where])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return parts one behind the other."""
        if len(parts) == 1:
            return parts[0]
        packed = [gathered(part) for part in parts]
        sizes = np.concatenate([sizes for _, sizes in packed])
        data = np.concatenate([*(data for data, _ in packed), np.zeros(PADDING, np.uint8)])
        return cls(data, np.cumsum(sizes) - sizes, sizes)


def gathered(texts: StringColumn) -> tuple[Bytes, Counts]:
    """Return the bytes of texts one behind the other, without padding, and their sizes."""
    starts, sizes, data = texts.starts, texts.sizes, texts.data
    if not len(sizes):
        return np.zeros(0, np.uint8), sizes
    if bool((starts[1:] == starts[:-1] + sizes[:-1]).all()):
        return data[int(starts[0]) : int(starts[-1] + sizes[-1])], sizes
    ends = np.cumsum(sizes)
    where = np.arange(int(ends[-1])) + np.repeat(starts - (ends - sizes), sizes)
    return data[where], sizes


def from_arrow(column: Any) -> StringColumn | None:
    """Return an array of Arrow, if it is of texts of printable ASCII characters, none missing or empty."""
    kind = {"string": np.int32, "large_string": np.int64}.get(str(column.type))
    if column.null_count or kind is None:
        return None
    _, ends, data = column.buffers()
    bounds = np.frombuffer(ends, kind)[column.offset :][: len(column) + 1].astype(np.int64)
    start, size = int(bounds[0]), int(bounds[-1] - bounds[0])
    text = np.zeros(size + PADDING, np.uint8)
    text[:size] = np.frombuffer(data, np.uint8, size, start) if size else 0
    sizes = np.diff(bounds)
    if not (sizes > 0).all() or not ((text[:size] >= _SPACE) & (text[:size] <= _TILDE)).all():
        return None
    return StringColumn(text, bounds[:-1] - start, sizes)
