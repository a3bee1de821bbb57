"""`rankloop doctor`: checks of the installation here, of the service and its store in `service`; all only read."""

from __future__ import annotations

import json
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

State = Literal["ok", "note", "warning", "error"]
OLDEST = (3, 11)
EXTRAS = {"service": "to serve", "lab": "for simulations and figures", "postgres": "for stores that machines share"}
EXTRAS |= {"neural": "for networks"}
LARGE = 2 * 2**30  # bytes of compiled kernels


class Finding(NamedTuple):
    """The result of one check."""

    name: str  # of the check, stable so that programs can look for it
    state: State  # note: worth knowing; warning: works, but not well; error: does not work
    text: str
    remedy: str = ""  # what to do; empty if nothing


def examine(store: str | None = None, host: str | None = None, port: int | None = None) -> Iterator[Finding]:
    """Check everything that a service with these settings needs; findings as they come."""
    yield from python()
    yield from packages()
    yield from kernels()
    yield from threads()
    try:
        from rankloop.service.doctor import service
    except ModuleNotFoundError:
        return  # without the extra there is no service; `packages` has reported that
    yield from service.examine(os.environ, store, host, port)


def with_remedy(name: str, state: State, error: Exception | str, otherwise: str = "") -> Finding:
    """A finding from a message of the form `what is wrong; what to do`."""
    text, _, remedy = str(error).partition("; ")
    return Finding(name, state, text, remedy or otherwise)


def python(
    version: tuple[int, ...] = sys.version_info[:3], bits: int = sys.maxsize.bit_length() + 1
) -> Iterator[Finding]:
    """Whether rankloop runs on this Python."""
    text = f"{platform.python_implementation()} {'.'.join(map(str, version))}, {bits} bits"
    if version[:2] < OLDEST:
        yield Finding("python", "error", text, "install Python 3.11 or newer, and rankloop in a new environment")
    elif bits < 64:
        yield Finding("python", "error", text, "install a 64-bit Python: numba has no other")
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield Finding("python", "warning", f"{text}, free-threaded", "numba does not support it: use the usual one")
    else:
        yield Finding("python", "ok", text)


def packages(requirements: list[str] | None = None) -> Iterator[Finding]:
    """Whether the required packages are installed in supported versions, and which extras are complete."""
    from packaging.requirements import Requirement

    missing: dict[str, list[str]] = {}
    for text in (metadata.requires("rankloop") or []) if requirements is None else requirements:
        one = Requirement(text)
        core = one.marker is None or one.marker.evaluate({"extra": ""})
        extra = None if core else next((e for e in EXTRAS if one.marker and one.marker.evaluate({"extra": e})), None)
        if not core and extra is None:
            continue
        installed = _version(one.name)
        if installed is not None and one.specifier.contains(installed, prereleases=True):
            continue
        wrong = f"{one.name} is not installed" if installed is None else f"{one.name} is {installed}"
        wrong += f", but must be {one.specifier}" if installed is not None else ""
        if extra is None:
            yield Finding("packages", "error", wrong, f"pip install '{one.name}{one.specifier}'")
        else:
            missing.setdefault(extra, []).append(wrong)
    for extra, why in EXTRAS.items():
        if extra in missing:
            text = f"the extra {extra} ({why}) is incomplete: {'; '.join(missing[extra])}"
            yield Finding("extras", "note", text, f"if you want it: {install(extra)}")
    versions = ", ".join(f"{name} {_version(name)}" for name in ("rankloop", "numpy", "numba"))
    yield Finding("packages", "ok", versions)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def install(extra: str, origin: str | None = None) -> str:
    """The command that adds an extra to this installation. `origin` is the record of where it came from (PEP 610).

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
    """Whether kernels are compiled, and the compiled code is kept."""
    from rankloop.kernels._jit import cache_folder

    if environment.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield Finding("jit", "error", "NUMBA_DISABLE_JIT is set: everything is some hundred times slower", "unset it")
    folder = cache_folder()
    if folder is None:
        remedy = "set RANKLOOP_KERNELS to a writable folder; until then every process compiles again"
        yield Finding("kernels", "error", "compiled kernels cannot be kept", remedy)
    else:
        yield cached(folder)


def cached(folder: Path) -> Finding:
    """How much compiled code is in a folder."""
    size = sum(path.stat().st_size for path in folder.glob("*/*") if path.is_file())
    text = f"{size / 2**20:,.0f} MB of compiled kernels in {folder}"
    if not any(folder.glob("*/*.nbc")):
        remedy = "`rankloop compile hybrid` compiles ahead; else the first request of each learner waits for it"
        return Finding("kernels", "note", f"nothing is compiled yet in {folder}", remedy)
    if size > LARGE:
        return Finding("kernels", "warning", text, "delete the folder: what is needed is compiled again")
    return Finding("kernels", "ok", text)


def threads(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether linear algebra is configured to use threads, which slow rankloop down."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        value = environment.get(name, "1")
        if value != "1":
            remedy = "unset it: matrices here are small, and one thread gives the same bits everywhere"
            yield Finding("threads", "warning", f"{name} is {value}", remedy)
