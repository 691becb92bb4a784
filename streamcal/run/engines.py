"""One engine a key: those in use in memory, the others parked as their bytes.

An engine is there when it is looked up: still in memory, revived from its bytes, or made. Those used last
stay in memory, as many as `KeysConfig.memory` has room for, by their size at the last snapshot or rest.

Exactly once: `KeyedEngines.snapshot` hands out whatever has changed since it was last called, parked or not,
for a store to commit; what is there is parked nowhere else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from streamcal.engine.engine import Engine
from streamcal.run.config import KeysConfig

_FEWEST: Final = 4  # engines that stay in memory whatever their size

Key = str | None


class _Used(dict[Key, Engine]):
    """The engines used since the last snapshot; an engine that is looked up is used."""

    def __init__(self, fetch: Callable[[Key], Engine]) -> None:
        self._fetch = fetch

    def __missing__(self, key: Key) -> Engine:
        found = self[key] = self._fetch(key)
        return found


class KeyedEngines(Mapping[Key, Engine]):
    """One engine a key, made by `of` when a key first comes.

    As a mapping, it is there to look at: an engine that is parked is made when it is asked for, and not kept.

    Parameters
    ----------
    config
        how many keys there may be, and what their engines may take in memory.
    make
        makes the engine of a key, from its bytes or, where there are none, new.
    """

    def __init__(self, config: KeysConfig, make: Callable[[Key, bytes | None], Engine]) -> None:
        self._config = config
        self._make = make
        self._used = _Used(self._fetch)  # since the last snapshot or rest
        self._idle: OrderedDict[Key, Engine] = OrderedDict()  # unused since the last snapshot, latest last
        self._sizes: dict[Key, int] = {}  # of the engines in memory
        self._size = 0  # of them all
        self._parked: dict[Key, bytes] = {}  # what is neither in memory nor in the store
        self._stored: Mapping[Key, bytes] | None = None
        self._keys: dict[Key, None] = {}
        self.known: Mapping[Key, None] = self._keys
        """All keys that have an engine, in the order of their first event."""
        self._new: list[Key] = []  # of them, since the last snapshot
        self.of: Callable[[Key], Engine] = self._used.__getitem__
        """Gives the engine of a key; it may be changed until the next snapshot or rest."""

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: Key) -> Engine:
        if key not in self._keys:
            raise KeyError(key)
        kept = self._used.get(key) or self._idle.get(key)
        return kept or self._make(key, self._parked.get(key) or self._in_store(key))

    @property
    def in_memory(self) -> int:
        """Number of engines in memory."""
        return len(self._used) + len(self._idle)

    def admits(self, key: Key) -> bool:
        """Whether a key has an engine, or may have one."""
        return key in self._keys or len(self._keys) < self._config.limit

    def changed(self, key: Key) -> bool:
        """Whether the engine of a key has been used since the last snapshot or rest."""
        return key in self._used or (self._stored is not None and key in self._parked)

    def snapshot(self) -> dict[Key, bytes]:
        """Return the states that have changed since the last call; they are to be committed at once.

        Those of new keys come first, in the order of their first event.
        """
        changed = self._parked | {key: kept.to_bytes() for key, kept in self._used.items()}
        changed = {key: changed[key] for key in self._new} | changed  # whatever was parked meanwhile
        self._new = []
        if self._stored is not None:
            self._parked = {}
        self.rest()
        return changed

    def rest(self) -> None:
        """Park those used longest ago, if all take too much memory; say so between two micro-batches."""
        for key, kept in self._used.items():
            self._measure(key, kept)
        self._idle.update(self._used)
        self._used.clear()
        self._park()

    def restore(self, stored: Mapping[Key, bytes]) -> None:
        """Go on with the engines of a store: these have to show what was committed last, now and later."""
        for engines in (self._used, self._idle, self._sizes, self._parked):
            engines.clear()
        self._size = 0
        self._stored = stored
        self._keys.clear()
        self._keys.update(dict.fromkeys(stored))
        self._new = []

    def _fetch(self, key: Key) -> Engine:
        kept = self._idle.pop(key, None)
        if kept is not None:
            return kept
        self._park()
        data = None
        if key in self._keys:
            data = self._parked.pop(key, None) or self._in_store(key)
        else:
            self._keys[key] = None
            self._new.append(key)
        made = self._make(key, data)
        self._measure(key, made)
        return made

    def _measure(self, key: Key, engine: Engine) -> None:
        """Note the size of an engine in memory."""
        size = engine.memory
        self._size += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def _park(self) -> None:
        """Park engines while they take too much memory: first those unused since the last snapshot."""
        while self._size > self._config.memory and self.in_memory > _FEWEST:
            engines: dict[Key, Engine] = self._idle or self._used
            key = next(iter(engines))
            engine = engines.pop(key)
            self._size -= self._sizes.pop(key)
            if engines is self._used or self._stored is None:
                self._parked[key] = engine.to_bytes()

    def _in_store(self, key: Key) -> bytes | None:
        return None if self._stored is None else self._stored[key]
