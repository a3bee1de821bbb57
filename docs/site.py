"""What `make docs` adds to the pages: a reference of every public name, made from the docstrings.

mkdocs calls the functions here (`hooks` in mkdocs.yml). A public name without a docstring is a warning, and warnings
end the build.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Packages in the order in which a new reader needs them, under the title of their part of the reference.
PARTS = {
    "Types and the learner protocol": ["core", "features"],
    "Learners": ["learners"],
    "Evaluation and simulated clicks": ["evaluation", "clicks"],
    "Logs and checks for your own learner": ["logs", "checks"],
    "Client of the service": ["client"],
}
log = logging.getLogger("mkdocs.hooks.rankloop")


def on_config(config: Any) -> Any:
    """Put the reference into the navigation."""
    api: list[Any] = ["reference/index.md"]
    for title, names in PARTS.items():
        api.append({title: [page_of(module) for name in names for module in modules(name)]})
    next(part["Reference"] for part in config.nav if "Reference" in part).append({"API": api})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the reference."""
    lines = ["# API reference", "", "Every public name of the library, from its docstring.", ""]
    for title, names in PARTS.items():
        lines += [f"## {title}", ""]
        for module in (module for name in names for module in modules(name)):
            page = page_of(module)
            lines.append(f"- [`{module}`]({page.partition('/')[2]}): {summary(module)}")
            text = f"# {module}\n\n::: {module}\n    options:\n      show_root_heading: false\n"
            files.append(File.generated(config, page, content=text))
        lines.append("")
    files.append(File.generated(config, "reference/index.md", content="\n".join(lines)))
    return files


def on_pre_build(config: Any) -> None:  # noqa: ARG001
    """Refuse public names that say nothing."""
    for names in PARTS.values():
        for name in names:
            for module in modules(name):
                for place in undocumented(module):
                    log.warning("%s has no docstring: say what it is, or name it with an underscore", place)


def modules(name: str) -> list[str]:
    """A module, or the public ones of a package; one that only gathers others is left out.

    >>> "rankloop.core.types" in modules("core")
    True
    """
    path = SOURCE / "rankloop" / name
    if not path.is_dir():
        return [f"rankloop.{name}"]
    found = []
    for file in sorted(path.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        if parts[-1] != "__init__":
            found.append(".".join(parts))
        elif list(public(file)):
            found.append(".".join(parts[:-1]))
    return found


def page_of(module: str) -> str:
    """Where a module's reference is."""
    return f"reference/{module.replace('.', '-')}.md"


def file_of(module: str) -> Path:
    """The source of a module or package."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def summary(module: str) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(file_of(module).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def public(file: Path) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """The public classes and functions of a file."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def undocumented(module: str) -> Iterator[str]:
    """Public classes, functions and methods of a module that have no docstring."""
    for node in public(file_of(module)):
        if ast.get_docstring(node) is None:
            yield f"{module}.{node.name}"
        for part in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and ast.get_docstring(part) is None:
                yield f"{module}.{node.name}.{part.name}"
