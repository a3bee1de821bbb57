"""A disk whose power can be cut: it stands between SQLite and the files, and knows what has been synced.

SQLite reaches files through a table of functions, which may be replaced. Here writing, truncating and syncing are: what
is written goes to the real file as always, and is remembered as unsafe until that file is synced. After a power cut a
disk holds what was synced, and of the rest any part in any order, down to single sectors: `cut` makes such a folder.

What this does not do: it believes that the system's fsync and the disk under it do what they say, and that a sector is
written in whole or not at all.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

SECTOR = 512
_made: list[Disk] = []  # SQLite may keep the address of one as long as it likes
OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
CLOSE = CFUNCTYPE(c_int, c_void_p)
WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


class Methods(Structure):
    """sqlite3_io_methods: what can be done to an open file."""

    _fields_ = [
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
        ("truncate", c_void_p),
        ("sync", c_void_p),
        ("others", c_void_p * 13),
    ]


class System(Structure):
    """sqlite3_vfs: how files are opened."""

    _fields_ = [
        ("version", c_int),
        ("size", c_int),
        ("longest", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("others", c_void_p * 15),
    ]


class File:
    """A file as it was when it was last synced, and what has been done to it since."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.unsafe: list[tuple[int, bytes | None]] = []  # (offset, bytes), or (size, None) for a truncation

    def sync(self) -> None:
        for offset, data in self.unsafe:
            _apply(self.safe, offset, data)
        self.unsafe.clear()

    def after_a_cut(self, rng: random.Random) -> bytes:
        """What may be there: all that is safe, and some sectors of what is not."""
        found, share = bytearray(self.safe), rng.choice([0.0, 0.5, 0.9, 1.0])
        for offset, data in self.unsafe:
            if data is None:
                if rng.random() < share:
                    _apply(found, offset, None)
                continue
            for start in range(0, len(data), SECTOR):
                if rng.random() < share:
                    _apply(found, offset + start, data[start : start + SECTOR])
        return bytes(found)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class Disk:
    """All files that SQLite has opened since."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._open: dict[int, File] = {}  # by the address of SQLite's own record
        self._lock = threading.RLock()
        self._patched: dict[int, Methods] = {}
        self._plain: dict[int, Any] = {}
        library: Any = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        library.sqlite3_vfs_find.restype = POINTER(System)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        library.sqlite3_vfs_register.argtypes = library.sqlite3_vfs_unregister.argtypes = [c_void_p]
        library.sqlite3_vfs_register.argtypes = [c_void_p, c_int]
        self._library = library
        self._below = library.sqlite3_vfs_find(None)
        self._open_below = OPEN(self._below.contents.open)
        self._own = System.from_buffer_copy(self._below.contents)
        self._own.name = b"power"
        self._callbacks = [OPEN(self._opened), CLOSE(self._closed), WRITE(self._write)]
        self._callbacks += [TRUNCATE(self._truncate), SYNC(self._sync)]
        self._own.open = ctypes.cast(self._callbacks[0], c_void_p)

    def plug_in(self) -> None:
        assert self._library.sqlite3_vfs_register(ctypes.addressof(self._own), 1) == 0

    def pull_out(self) -> None:
        assert self._library.sqlite3_vfs_unregister(ctypes.addressof(self._own)) == 0

    def cut(self, database: Path, folder: Path, rng: random.Random) -> Path:
        """A database as it may be found after a power cut at this moment, in another folder."""
        with self._lock:
            files = {end: self._files.get(f"{database}{end}") for end in ("", "-wal")}
            found = {end: file.after_a_cut(rng) for end, file in files.items() if file is not None}
        folder.mkdir()
        for end, content in found.items():
            (folder / f"{database.name}{end}").write_bytes(content)
        return folder / database.name

    # -- called by SQLite ------------------------------------------------------------------------------------------

    def _opened(self, _: int, name: int, record: int, flags: int, out: int) -> int:
        found: int = self._open_below(ctypes.addressof(self._below.contents), name, record, flags, out)
        if found == 0 and name:
            path = ctypes.string_at(name).decode()
            with self._lock:
                self._open[record] = self._files.setdefault(path, File())
            methods = ctypes.cast(record, POINTER(c_void_p))
            address = methods[0]
            assert address is not None
            if address not in self._patched:
                self._plain[address] = plain = Methods.from_address(address)
                self._patched[address] = patched = Methods.from_buffer_copy(plain)
                for name_of, callback in zip(("close", "write", "truncate", "sync"), self._callbacks[1:], strict=True):
                    setattr(patched, name_of, ctypes.cast(callback, c_void_p))
            methods[0] = ctypes.addressof(self._patched[address])
        return found

    def _below_of(self, record: int) -> Methods:
        """The functions that were there before: a file's own table is the patched one, known by its address."""
        own = ctypes.cast(record, POINTER(c_void_p))[0]
        plain = next(a for a, patched in self._patched.items() if ctypes.addressof(patched) == own)
        found: Methods = self._plain[plain]
        return found

    def _closed(self, record: int) -> int:
        below = self._below_of(record)
        with self._lock:
            self._open.pop(record, None)
        return int(CLOSE(below.close)(record))

    def _write(self, record: int, data: int, size: int, offset: int) -> int:
        with self._lock:
            self._open[record].unsafe.append((offset, ctypes.string_at(data, size)))
        return int(WRITE(self._below_of(record).write)(record, data, size, offset))

    def _truncate(self, record: int, size: int) -> int:
        with self._lock:
            self._open[record].unsafe.append((size, None))
        return int(TRUNCATE(self._below_of(record).truncate)(record, size))

    def _sync(self, record: int, flags: int) -> int:
        with self._lock:
            before = len(self._open[record].unsafe)
        found = int(SYNC(self._below_of(record).sync)(record, flags))
        with self._lock:  # what came while the system was at it may have missed it
            file = self._open[record]
            later, file.unsafe = file.unsafe[before:], file.unsafe[:before]
            file.sync()
            file.unsafe = later
        return found


@contextmanager
def powered() -> Iterator[Disk]:
    """Every database that is opened meanwhile is on this disk; close them all before it ends."""
    disk = Disk()
    _made.append(disk)
    disk.plug_in()
    try:
        yield disk
    finally:
        disk.pull_out()
