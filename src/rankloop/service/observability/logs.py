"""Log lines on standard error, as text or JSON, with the request that they belong to.

They never contain bodies, keys, tokens, passwords of stores, queries, items or users.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import msgspec

from rankloop.service.observability import tracing

STOPPING = "stopping: requests in flight are finished, and what was learned is saved"
STOPPED = "stopped"


def config(kind: str = "plain") -> dict[str, Any]:
    """For `logging.config.dictConfig`, whoever starts the server."""
    formatter = {"()": f"rankloop.service.observability.logs.{'Json' if kind == 'json' else 'Plain'}Lines"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "loggers": {
            "rankloop": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
            # It warns of each request that it cannot parse. `http.request_log` does so too, and bounds the lines.
            "uvicorn.error": {"handlers": ["stderr"], "level": "ERROR", "propagate": False},
            # It warns of every try, several a second; that the store is away is told by those who wait for it.
            "psycopg.pool": {"handlers": ["stderr"], "level": "ERROR", "propagate": False},
        },
    }


class PlainLines(logging.Formatter):
    """`2026-11-17 05:40:00,123 INFO 4711 ranker shop: reset; what was is v3 (request 8f3a-12, key ops)`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line and its traceback, without ids of users and items."""
        return _redacted(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line; a traceback goes behind it."""
        told = ", ".join(f"{name} {value}" for name, value in _request().items())
        line = super().formatMessage(record)
        return f"{line} ({told})" if told else line


class JsonLines(logging.Formatter):
    """An object a line: time, level, process, message, and what is known of the request."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": record.process,
            "message": _redacted(record.getMessage()),
        }
        line |= {{"request": "request_id", "trace": "trace_id"}.get(k, k): value for k, value in _request().items()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = _redacted(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def _redacted(text: str) -> str:
    """A text without the id of the user or item that the current request is about."""
    trace = tracing.current.get()
    if trace is None or not trace.private:
        return text
    return re.sub(rf"(?<!\w){re.escape(trace.private)}(?!\w)", "…", text)


def _request() -> dict[str, str]:
    """What is known of the request that a line is written for."""
    trace = tracing.current.get()
    if trace is None:
        return {}
    return {k: v for k, v in (("request", trace.id), ("key", trace.key), ("trace", trace.trace_id)) if v}
