"""Naive twins of `rankloop.kernels.hashing`: Python's integers, cut to 64 bits."""

from __future__ import annotations

BITS = 2**64


def text_code(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    code = 14695981039346656037
    for byte in data:
        code = (code ^ byte) * 1099511628211 % BITS
    return code


def spread(code: int) -> int:
    """The finalizer of splitmix64."""
    code = (code ^ code >> 30) * 0xBF58476D1CE4E5B9 % BITS
    code = (code ^ code >> 27) * 0x94D049BB133111EB % BITS
    return code ^ code >> 31


def crossed(left: int, right: int) -> int:
    """The code of two codes."""
    return spread((spread(left) + 0x9E3779B97F4A7C15 + right) % BITS)


def column(code: int, width: int, signed: bool) -> tuple[int, float]:
    """Where a code falls, and its sign."""
    return code % width, -1.0 if signed and code >= 2**63 else 1.0
