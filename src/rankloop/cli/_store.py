"""What commands share that work on a service or its store: options, settings, times and sizes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.service.settings import Settings
    from rankloop.service.storage import Writer
    from rankloop.service.storage.database import Database

Store = Annotated[str | None, Parameter(help="The store, as in `rankloop serve`.")]
Json = Annotated[bool, Parameter(help="Print JSON.")]
Key = Annotated[
    str | None, Parameter(help="The API key, if the service needs one.", env_var="RANKLOOP_KEY", show_default=False)
]
Url = Annotated[str, Parameter(help="The service.")]
LOCAL = "http://127.0.0.1:8080"


def settings(store: str | None = None, **others: Any) -> Settings:
    """The settings of the service, with those that are given as options."""
    with needs_extra("service"):
        from rankloop.service.settings import from_environment

        return from_environment(store=store, **others)


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a missing module into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"this needs {error.name}; pip install 'rankloop[{extra}]'") from None


def writable(store: str | None) -> AbstractContextManager[Writer]:
    """A store to write to; it is created if it does not exist."""
    chosen = settings(store)
    from rankloop.service.supervisor.run import opened

    return opened(chosen)


def readable(store: str | None) -> AbstractContextManager[Database]:
    """A store to read from; it must exist."""
    chosen = settings(store)
    from rankloop.service.offline.replay import open_store

    return open_store(chosen.store)


def require_file(url: str) -> None:
    """Refuse a SQLite file that does not exist: opening it would create an empty store."""
    from rankloop.service.storage import open_database
    from rankloop.service.storage.sqlite import SQLite

    database = open_database(url)
    database.close()
    if isinstance(database, SQLite) and not database.path.is_file():
        raise InvalidParameter(f"there is no store at {database.path}; give the file or URL that `rankloop serve` has")


def client(url: str, key: str | None, timeout: float = 10.0) -> Any:
    """A client of a running service."""
    with needs_extra("client"):
        from rankloop.client import Client

        return Client(url, key, timeout=timeout)


def utc(seconds: float, pattern: str = "%Y-%m-%d %H:%M") -> str:
    """A time for people, in UTC."""
    return time.strftime(pattern, time.gmtime(seconds))


def megabytes(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:,.1f} MB"


def split_names(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
