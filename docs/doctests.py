"""Examples in docstrings that stand without a heading, shown as code: what mkdocstrings reads them with (griffe)."""

from __future__ import annotations

from typing import Any

import griffe

HEADING = "----"


def fenced(text: str) -> str:
    """A docstring in which examples before the first heading stand between fences; those below one are known as such.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nEnd.").splitlines()[2:5]
    ['```pycon', '>>> 1 + 1', '2']
    """
    lines: list[str] = []
    inside = False
    for place, line in enumerate(source := text.splitlines()):
        if line.startswith(HEADING):
            return "\n".join([*lines, *source[place:]])
        if not inside and line.startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class Doctests(griffe.Extension):
    """Called for every object that has a docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Put fences where they are missing."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
