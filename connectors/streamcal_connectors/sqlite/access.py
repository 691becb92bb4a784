"""Who may open a store: the lock of the run that writes it, and how it is read beside one.

The lock is an advisory one (``flock``) on the file of the store itself: no other name of the file, and no
lost lock file, lets a second run in, and the kernel releases it however the process ends. SQLite's own locks
are of another kind (``fcntl``), which a process loses when it closes any descriptor of the file. So the
descriptor of the lock is closed after SQLite's, and none is opened for a file that this process has locked.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from streamcal.base.errors import StoreError

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = {"afs", "cifs", "fuse.sshfs", "nfs", "nfs4", "smb2", "smb3", "smbfs"}
_locked: Final[set[tuple[int, int]]] = set()  # device and inode of the stores that this process has locked


class StoreLock:
    """The lock of a store, made if there is none, until `close` or the end of the process.

    Raises
    ------
    StoreError
        if another process, or this one, has it; if the file has several names; if it lies on a network file
        system, which is known on Linux; or if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        found = check_file(path)
        system = _file_system(path)
        if system in _NETWORK:
            raise StoreError(
                f"{path} lies on a network file system ({system}), where SQLite's log and locks fail and"
                " commits may be lost: keep the store on a local disk"
            )
        if found is not None and found.st_nlink > 1:
            raise StoreError(
                f"{path} has {found.st_nlink} names (hard links), and SQLite's log would belong to one of"
                " them only: make it a copy of its own, or remove the other names"
            )
        if found is not None and (found.st_dev, found.st_ino) in _locked:
            raise _in_use(path)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            why = "there is no permission to write to it" if isinstance(error, PermissionError) else error
            raise StoreError(f"{path} cannot be opened: {why}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.fstat(self._file)
            replaced = not os.path.samestat(mine, path.stat())
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise _in_use(path) from None
            raise StoreError(f"{path} cannot be locked: {error}") from error
        if replaced:
            os.close(self._file)
            raise StoreError(f"{path} was replaced while it was opened: try again")
        self._number = mine.st_dev, mine.st_ino
        _locked.add(self._number)

    def close(self) -> None:
        """Release, after SQLite has closed the file; may be called twice."""
        if self._number in _locked:
            _locked.remove(self._number)
            os.close(self._file)


def check_file(path: Path) -> os.stat_result | None:
    """Return what the system says of a file, None if there is none; StoreError if it can be no store."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise StoreError(f"{path} is {what}: a store is one SQLite file, as `streamcal run --store` makes it")
    return found


def _file_system(path: Path) -> str | None:
    """Return the type of the file system that a file is or would be on; None if it is not known."""
    try:
        device = path.parent.resolve().stat().st_dev
        mounts = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    types = [line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == number]
    return types[0] if types else None


def reading_mode(path: Path) -> str:
    """Return the options of SQLite's URL to read a store, which another process may be writing.

    Raises
    ------
    StoreError
        if there is no store, or it cannot be read; it says what to do.
    """
    if check_file(path) is None:
        raise StoreError(f"there is no store {path}")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be opened: there is no permission to read it")
    real = Path(os.path.realpath(path))
    if os.access(real.parent, os.W_OK):
        return "mode=ro"
    log, index = (real.with_name(f"{real.name}{end}") for end in ("-wal", "-shm"))
    if not log.exists():  # all is in the file, and nobody is writing it
        return "mode=ro&immutable=1"
    if not (os.access(log, os.R_OK) and os.access(index, os.R_OK)):
        raise StoreError(
            f"{path} cannot be read here: its newest commits are in {log.name}, and to read them SQLite has"
            f" to write beside it, which {real.parent} does not allow. Copy both files to a directory of your"
            " own while no run has the store, and name the copy"
        )
    return "mode=ro"


def _in_use(path: Path) -> StoreError:
    return StoreError(f"{path} is in use by another process, which holds its lock: one run at a time")
