"""Gathers `rankloop_client` from rankloop's own files while its wheel is built, so that there is one client.

Only the roads of imports differ: what is `rankloop.wire` there is `rankloop_client.wire` here.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path(__file__).parents[1] / "src" / "rankloop"
_IMPORT = re.compile(r"(?m)^(\s*from |\s*import )rankloop\b")


class Gather(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Put the files in."""
        self._folder = tempfile.TemporaryDirectory()
        for name, text in gathered().items():
            path = Path(self._folder.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            build_data["force_include"][str(path)] = f"rankloop_client/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Leave nothing behind."""
        self._folder.cleanup()


def gathered() -> dict[str, str]:
    """Path in the package -> text."""
    files = {path.name: path for path in sorted((SOURCE / "client").glob("*.py"))}
    files |= {"core/__init__.py": SOURCE / "core" / "__init__.py", "core/errors.py": SOURCE / "core" / "errors.py"}
    files |= {f"wire/{path.name}": path for path in sorted((SOURCE / "wire").glob("*.py"))}
    files["py.typed"] = SOURCE / "py.typed"
    return {name: _moved(path.read_text("utf-8")) for name, path in files.items()}


def _moved(text: str) -> str:
    return _IMPORT.sub(r"\1rankloop_client", text).replace("rankloop_client.client", "rankloop_client")
