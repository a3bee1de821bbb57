"""Launcher: `python -m benchmarks` lists the benchmarks, `python -m benchmarks NAME [options]` runs one."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

from benchmarks.common import machine, print_rows


def available() -> dict[str, str]:
    """Benchmarks that can be run, and the first line of what each says of itself."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if functions & {"main", "run"} and path.stem != "__main__":
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main() -> None:
    """List, or run one."""
    names = available()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m benchmarks NAME [options]; NAME --help lists the options\n")
        for name, line in names.items():
            print(f"  {name:18} {line}")
        return
    name = sys.argv.pop(1)
    if name not in names:
        sys.exit(f"benchmarks: {name!r} is not a benchmark; there are {', '.join(names)}")
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "main"):
        module.main()
        return
    print(f"Machine: {machine()}\n")
    print_rows(module.run())


if __name__ == "__main__":
    main()
