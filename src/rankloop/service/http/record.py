"""What a request has changed is written into the audit list before its answer leaves.

Right after the change, not with it: operations are several transactions, and none of them needs to know who asked. If
the process dies in between, the log has the line and the list has not; if the store fails, the log says so.
"""

from __future__ import annotations

import asyncio
import logging

from rankloop.service.engine import Engine
from rankloop.service.store import audit
from rankloop.service.tracing import Trace

PATIENCE = 5.0  # seconds; the change has been made, so its answer must not wait for ever
logger = logging.getLogger("rankloop")


async def record(engine: Engine, trace: Trace) -> None:
    """Write down what was done so far."""
    now = engine.clock()
    entries = [audit.Entry(now, trace.key, *deed, trace.id) for deed in trace.deeds]
    trace.deeds.clear()
    write = engine.writer.run(lambda connection: audit.add(connection, entries), asyncio.get_running_loop())
    try:
        await write.done(PATIENCE)
    except Exception as error:
        texts = "; ".join(f"{one.action} {one.ranker or ''}: {one.text}" for one in entries)
        logger.error("the audit list could not be written (%s); what is missing there: %s", error, texts)
