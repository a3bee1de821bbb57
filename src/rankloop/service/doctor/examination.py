"""The whole examination, part by part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from rankloop.core.errors import InvalidParameter
from rankloop.service.doctor import installation
from rankloop.service.doctor.finding import Finding, State

__all__ = ["Finding", "State", "examine"]


def examine(store: str | None = None, host: str | None = None, port: int | None = None) -> Iterator[Finding]:
    """Look at everything that a service with these settings would stand on; findings as they come."""
    yield from installation.python()
    yield from installation.packages()
    yield from installation.kernels()
    yield from installation.threads()
    yield from _service(os.environ, store, host, port)


def _service(
    environment: Mapping[str, str], store: str | None, host: str | None, port: int | None
) -> Iterator[Finding]:
    try:
        from rankloop.service.doctor import machine, storage
        from rankloop.service.settings import from_environment
    except ModuleNotFoundError:
        return  # without the extra there is no service, and so nothing to look at; `packages` has told
    yield from machine.memory()
    yield from machine.files()
    yield from machine.clock()
    yield from machine.settings(environment)
    try:
        chosen = from_environment(environment, store=store, host=host, port=port)
    except InvalidParameter as error:
        if store is not None or host is not None or port is not None:  # what the environment has is told above
            text, _, remedy = str(error).partition("; ")
            yield Finding(
                "options", "trouble", text, remedy or "give --store, --host and --port as `rankloop serve` has"
            )
        return
    yield from machine.port(chosen)
    yield from storage.store(chosen)
