"""Python, the packages, and the machine code of the kernels."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rankloop.service.doctor.finding import Finding

OLDEST = (3, 11)
EXTRAS = {"service": "to serve", "lab": "for simulations and figures", "postgres": "for stores that machines share"}
EXTRAS |= {"neural": "for networks"}
LARGE = 2 * 2**30  # bytes of machine code that nobody needs
_REQUIREMENT = re.compile(r"^\s*([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*?)\s*(?:;(.*))?$")
_RULE = re.compile(r"^(>=|==|<|<=|>|!=)\s*([\d.]+)")


def python(
    version: tuple[int, ...] = sys.version_info[:3], bits: int = sys.maxsize.bit_length() + 1
) -> Iterator[Finding]:
    """Whether this Python is one that rankloop runs on."""
    said = f"{platform.python_implementation()} {'.'.join(map(str, version))}, {bits} bits"
    if version[:2] < OLDEST:
        yield Finding("python", "trouble", said, "install Python 3.11 or newer, and rankloop in a new environment")
    elif bits < 64:
        yield Finding("python", "trouble", said, "install a Python of 64 bits: numba has no other")
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield Finding(
            "python", "warning", f"{said}, without the global lock", "numba is not made for it: use the usual one"
        )
    else:
        yield Finding("python", "fine", said)


def packages(requirements: list[str] | None = None) -> Iterator[Finding]:
    """Whether what rankloop is built on is there, in versions that it knows; which extras are."""
    declared = metadata.requires("rankloop") or [] if requirements is None else requirements
    missing: dict[str, list[str]] = {}
    for text in declared:
        found = _REQUIREMENT.match(text)
        if found is None:
            continue
        name, rules, marker = found[1], found[2], found[3] or ""
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", marker)
        if extra is not None and extra[1] not in EXTRAS:
            continue
        if "win32" in marker and sys.platform == "win32":
            continue
        wrong = _wrong(name, rules)
        if wrong is None:
            continue
        if extra is None:
            yield Finding("packages", "trouble", wrong, f"pip install '{name}{rules}'")
        else:
            missing.setdefault(extra[1], []).append(wrong)
    for part, why in EXTRAS.items():
        if part in missing:
            text = f"the extra {part} ({why}) is not whole: {'; '.join(missing[part])}"
            yield Finding("extras", "note", text, f"if you want it: {install(part)}")
    yield Finding(
        "packages", "fine", f"rankloop {_version('rankloop')}, numpy {_version('numpy')}, numba {_version('numba')}"
    )


def install(extra: str, origin: str | None = None) -> str:
    """How to add an extra to this installation. `origin` is the record of where it came from (PEP 610); read from the
    installation unless given. Without a record it came from a package index.

    >>> install("neural", '{"url": "file:///home/me/rankloop", "dir_info": {"editable": true}}')
    "in /home/me/rankloop: make install, or pip install -e '.[neural]'"
    >>> install("neural", '{"url": "file:///tmp/rankloop-0.1.0-py3-none-any.whl", "archive_info": {}}')
    "pip install '/tmp/rankloop-0.1.0-py3-none-any.whl[neural]'"
    """
    found = json.loads(origin or metadata.distribution("rankloop").read_text("direct_url.json") or "{}")
    place = unquote(urlsplit(found.get("url", "")).path)
    if "dir_info" in found:
        return f"in {place}: make install, or pip install -e '.[{extra}]'"
    return f"pip install '{place or 'rankloop'}[{extra}]'"


def kernels(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether machine code is compiled, and kept."""
    from rankloop.kernels._jit import cache_folder

    if environment.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield Finding("jit", "trouble", "NUMBA_DISABLE_JIT is set: everything is some hundred times slower", "unset it")
    folder = cache_folder()
    if folder is None:
        remedy = "set RANKLOOP_KERNELS to a folder that can be written; until then every process compiles anew"
        yield Finding("kernels", "trouble", "machine code cannot be kept", remedy)
        return
    yield from kept(folder)


def kept(folder: Path) -> Iterator[Finding]:
    """How much of it there is in a folder."""
    sizes = [path.stat().st_size for path in folder.glob("*/*") if path.is_file()]
    said = f"{sum(sizes) / 2**20:,.0f} MB of machine code in {folder}"
    if not any(folder.glob("*/*.nbc")):
        remedy = "`rankloop compile hybrid` compiles ahead; else the first request of each learner waits for it"
        yield Finding("kernels", "note", f"nothing is compiled yet in {folder}", remedy)
    elif sum(sizes) > LARGE:
        yield Finding("kernels", "warning", said, "delete the folder: what is used comes back")
    else:
        yield Finding("kernels", "fine", said)


def threads(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether linear algebra is told to use threads, which here only fight each other."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        given = environment.get(name, "1")
        if given != "1":
            remedy = "unset it: matrices here are small, and one thread gives the same bits everywhere"
            yield Finding("threads", "warning", f"{name} is {given}", remedy)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _wrong(name: str, rules: str) -> str | None:
    """What is wrong with a package; None if nothing is."""
    there = _version(name)
    if there is None:
        return f"{name} is not installed"
    for rule in filter(None, rules.split(",")):
        found = _RULE.match(rule.strip())
        if found is not None and not _holds(_numbers(there), found[1], _numbers(found[2])):
            return f"{name} is {there}, but must be {rules}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _holds(there: tuple[int, ...], sign: str, wanted: tuple[int, ...]) -> bool:
    there, wanted = (part + (0,) * (3 - len(part)) for part in (there, wanted))
    return {
        ">=": there >= wanted,
        "<=": there <= wanted,
        "==": there == wanted,
        "!=": there != wanted,
        "<": there < wanted,
        ">": there > wanted,
    }[sign]
