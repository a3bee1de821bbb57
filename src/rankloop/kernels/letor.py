"""LETOR text to numbers, byte by byte.

The kernel knows the ordinary line only. At any other (malformed, wider than the block, a number it cannot round for
certain) it stops, and the careful parser of `rankloop.lab.datasets.letor` reads that line or says what is wrong with
it.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit

TAB, NEWLINE, RETURN, SPACE, HASH, PLUS, MINUS, POINT, ZERO, NINE, COLON = (ord(c) for c in "\t\n\r #+-.09:")
Q, I, D, E_LARGE, E_SMALL = (ord(c) for c in "qidEe")  # noqa: E741
MOST_DIGITS = 10**17  # a mantissa below it takes one more digit and still fits an int64
LOWEST, HIGHEST = -250, 294  # powers of ten for which nothing under- or overflows on the way
DOWN, UP = 2.0**-60, 2.0**60  # keeps products off the top of the float range; exact, being powers of two
TOP = float(np.finfo(np.float64).max) * DOWN


def _powers_of_ten() -> Array:
    """(2, HIGHEST - LOWEST + 1) each power as the nearest float64 and what is missing from it: about 106 bits."""
    pairs = []
    for exponent in range(LOWEST, HIGHEST + 1):
        above, below = 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
        nearest = above / below  # integers divide with one correct rounding
        n, d = nearest.as_integer_ratio()
        pairs.append((nearest, (above * d - n * below) / (below * d)))
    return np.array(pairs).T.copy()


TENS = _powers_of_ten()


@jit
def decimal(mantissa: int, exponent: int) -> float:
    """mantissa * 10**exponent, correctly rounded; nan where that takes more than 106 bits to tell."""
    value: float
    if mantissa <= 1 << 53 and -22 <= exponent <= 22:  # both exact, so the one operation rounds once
        ten = TENS[0, abs(exponent) - LOWEST]
        value = mantissa / ten if exponent < 0 else mantissa * ten
        return value
    if mantissa == 0:
        return 0.0
    if exponent < LOWEST or exponent > HIGHEST:
        return np.nan
    whole = float(mantissa)
    head, rest = whole * DOWN, (mantissa - int(whole)) * DOWN
    ten, ten_rest = TENS[0, exponent - LOWEST], TENS[1, exponent - LOWEST]
    product = head * ten
    # Dekker's product: its rounding error, exactly, from halves of 26 bits
    a = 134217729.0 * head
    a_high = a - (a - head)
    a_low = head - a_high
    b = 134217729.0 * ten
    b_high = b - (b - ten)
    b_low = ten - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    tail = error + (head * ten_rest + rest * ten)
    slack = product * 2.0**-98  # far more than all that was dropped
    value = product + (tail - slack)
    if value != product + (tail + slack) or value > TOP:  # too near the middle of two floats, or infinite
        return np.nan
    return value * UP


@jit
def _number(text: Array, at: int) -> tuple[float, int]:
    """The decimal number at `at` and where it ends; nan if there is none that this kernel is sure of."""
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    mantissa = 0
    digits = 0
    point = -1
    while True:
        c = int(text[at])
        if ZERO <= c <= NINE:
            if mantissa >= MOST_DIGITS:
                return np.nan, at
            mantissa = mantissa * 10 + (c - ZERO)
            digits += 1
        elif c == POINT and point < 0:
            point = digits
        else:
            break
        at += 1
    if digits == 0:
        return np.nan, at
    exponent = 0 if point < 0 else point - digits
    if c in (E_SMALL, E_LARGE):
        at += 1
        down = text[at] == MINUS
        if down or text[at] == PLUS:
            at += 1
        start = at
        power = 0
        while ZERO <= text[at] <= NINE and power < 1000:
            power = power * 10 + (int(text[at]) - ZERO)
            at += 1
        if at == start:
            return np.nan, at
        exponent += -power if down else power
    value = decimal(mantissa, exponent)
    return (-value if negative else value), at


@jit
def _after_blanks(text: Array, at: int) -> int:
    while text[at] in (SPACE, TAB, RETURN):
        at += 1
    return at


@jit
def _ends_token(c: int) -> bool:
    return c in (SPACE, NEWLINE, TAB, RETURN, HASH)


@jit
def parse_lines(text: Array, at: int, block: Array, grades: Array, runs: Array) -> tuple[int, int, int, int, bool]:
    """Read lines from byte `at` on until the text ends, the block is full or a line is not ordinary.

    `text` is bytes of whole lines, the last one a newline, so that no loop below need look where the end is.
    Fills rows of `block` (n, d) and `grades` (n,), and `runs` (n, 3): for each run of rows with one query its first
    row and where in the text its id begins and ends. Returns the byte where it stopped (the start of a line), the rows
    and runs filled, the lines passed, and whether the line it stopped at is one for the careful parser.
    """
    seen = np.full(block.shape[1], -1)  # the row that last had the feature: finds duplicates in any order
    row = run = lines = begin = length = 0
    while at < text.size and row < block.shape[0]:
        start = at
        at = _after_blanks(text, at)
        if text[at] != NEWLINE and text[at] != HASH:
            grade = int(text[at]) - ZERO  # one digit; other grades are the careful parser's
            if grade < 0 or grade > 9 or (text[at + 1] != SPACE and text[at + 1] != TAB):
                return start, row, run, lines, True
            at = _after_blanks(text, at + 1)
            if text[at] != Q or text[at + 1] != I or text[at + 2] != D or text[at + 3] != COLON:
                return start, row, run, lines, True
            at += 4
            token = at
            while not _ends_token(text[at]):
                at += 1
            if at == token:
                return start, row, run, lines, True
            same = row > 0 and at - token == length
            for i in range(length if same else 0):
                same = same and text[token + i] == text[begin + i]
            begin, length = token, at - token

            block[row] = 0.0
            at = _after_blanks(text, at)
            while text[at] != NEWLINE and text[at] != HASH:
                index = 0
                while ZERO <= text[at] <= NINE and index <= seen.size:
                    index = index * 10 + (int(text[at]) - ZERO)
                    at += 1
                if index == 0 or index > seen.size or text[at] != COLON or seen[index - 1] == row:
                    return start, row, run, lines, True
                value, at = _number(text, at + 1)
                if np.isnan(value) or not _ends_token(text[at]):
                    return start, row, run, lines, True
                seen[index - 1] = row
                block[row, index - 1] = value
                at = _after_blanks(text, at)

            grades[row] = grade
            if not same:
                runs[run] = (row, begin, begin + length)
                run += 1
            row += 1
        while text[at] != NEWLINE:
            at += 1
        at += 1
        lines += 1
    return at, row, run, lines, False
