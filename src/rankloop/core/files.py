"""Files: write atomically, read with clear errors, decompress gzip."""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from rankloop.core.errors import CodecError

GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)  # raised while reading a damaged or cut gzip file


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file atomically: a full disk or a killed process leaves the previous file."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a whole file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CodecError(f"{path}: {error.strerror}; check the path") from None


def ungzipped(file: BufferedReader) -> BinaryIO:
    """Return the file itself, or its decompressed content if it is gzip."""
    packed = file.peek(2)[:2] == b"\x1f\x8b"
    return cast(BinaryIO, gzip.GzipFile(fileobj=file) if packed else file)
