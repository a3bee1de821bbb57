"""The thread that sends notices to the operator's webhook when a guardrail demotes a ranker.

Delivery is at least once: a notice is stored with the demotion, sent again with growing pauses, also after a restart,
and deleted when the webhook accepts it. The process that learns the ranker sends it; if none does, the process that
counts its experiments (`windows`), if that process learns other rankers. Neither learning nor ranking waits for it.
"""

from __future__ import annotations

import hmac
import logging
import random
from collections.abc import Mapping

from rankloop.service.storage import notices
from rankloop.service.storage.notices import Notice
from rankloop.service.training.fold import Fold
from rankloop.service.training.leases import Leases
from rankloop.service.worker.background_threads import Repeating
from rankloop.service.worker.process import Process

LOOK_EVERY = 1.0  # seconds
PATIENCE = 10.0  # seconds for the webhook to answer
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds before the second try; doubled after each, up to this
GIVE_UP = 24 * 3600.0  # seconds after which nobody needs to be woken any more
logger = logging.getLogger("rankloop")


class Notices:
    """Delivers what waits in the store, if there is a webhook; without one it is thrown away."""

    def __init__(self, process: Process, folds: Mapping[str, Fold], leases: Leases) -> None:
        self.process, self._folds, self._leases = process, folds, leases
        self.thread = Repeating("notices", LOOK_EVERY, self.deliver, process.database, process.thread_failed)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def stop(self) -> None:
        """End; what waits is delivered after the next start."""
        self.thread.stop(patience=2.0)  # a webhook that hangs is not waited for

    def deliver(self) -> None:
        """Try what is due, of rankers that are learned here, and of those that nobody learns if that is up to us."""
        process, now = self.process, self.process.clock()
        due = process.database.read(lambda c: notices.due(c, now))
        held = {name for name, fold in list(self._folds.items()) if fold.held}
        others = self._leases.learned() if due and self._leases.in_charge else None
        for one in due:
            unlearned = others is not None and one.ranker not in others
            if (one.ranker in held or unlearned) and not self.thread.stopping:
                self._settle(one)
        counts = process.database.read(notices.waiting)
        for name in held:
            process.metrics.gauge("notices_waiting", counts.get(name, 0), ranker=name)

    def _settle(self, one: Notice) -> None:
        process, now = self.process, self.process.clock()
        if not process.settings.webhook:
            process.writer.do(lambda c: notices.drop(c, one.id))
            return
        problem = self._post(one)
        if problem is None:
            process.writer.do(lambda c: notices.drop(c, one.id))
            process.metrics.count("notices_total", ranker=one.ranker, result="delivered")
            logger.info("ranker %s: the webhook was told (notice %s)", one.ranker, one.id)
        elif now - one.created > GIVE_UP:
            process.writer.do(lambda c: notices.drop(c, one.id))
            process.metrics.count("notices_total", ranker=one.ranker, result="given-up")
            logger.error("ranker %s: notice %s is given up after a day: %s", one.ranker, one.id, problem)
        else:
            # Some chance in it, so that services that lost one webhook do not come back to it all at once.
            pause = min(FIRST_PAUSE * 2.0**one.tries, LONGEST_PAUSE) * random.uniform(0.75, 1.25)
            process.writer.do(lambda c: notices.again(c, one.id, now + pause))
            process.metrics.count("notices_total", ranker=one.ranker, result="failed")
            logger.warning("ranker %s: the webhook was not told, again in %.0f s: %s", one.ranker, pause, problem)

    def _post(self, one: Notice) -> str | None:
        """None if the webhook said yes, else what is wrong; without its address, which may hold a secret."""
        import httpx  # only those with a webhook wait for it to load

        settings = self.process.settings
        headers = {"Content-Type": "application/json", "X-Rankloop-Notice": one.id}
        if settings.webhook_secret:
            headers["X-Rankloop-Signature"] = signature(settings.webhook_secret, one.body)
        try:
            answer = httpx.post(settings.webhook, content=one.body, headers=headers, timeout=PATIENCE)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}: no answer within {PATIENCE:g} s, or no connection"
        return None if answer.is_success else f"it answered {answer.status_code}"


def signature(secret: str, body: bytes) -> str:
    """What the header `X-Rankloop-Signature` says, for whoever knows the secret to compare.

    >>> signature("secret", b"{}")[:20]
    'sha256=77325902caca8'
    """
    return "sha256=" + hmac.new(secret.encode(), body, "sha256").hexdigest()
