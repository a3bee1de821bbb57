"""The thread that sends notifications to the operator's webhook when a guardrail demotes a ranker.

Delivery is at least once: a notification is stored with the demotion, sent again with growing pauses, also after a
restart, and deleted when the webhook accepts it. Neither learning nor ranking waits for it.
"""

from __future__ import annotations

import hmac
import logging
import random

from rankloop.service.storage import experiments
from rankloop.service.storage.experiments import WebhookMessage
from rankloop.service.training.learning import Learning
from rankloop.service.worker.process import Process
from rankloop.service.worker.threads import RepeatingThread

LOOK_EVERY = 1.0  # seconds
TIMEOUT = 10.0  # seconds for the webhook to answer
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds before the second try; doubled after each, up to this
GIVE_UP = 24 * 3600.0  # seconds after which a notification is dropped
logger = logging.getLogger("rankloop")


class WebhookOutbox:
    """Delivers the notifications in the store; without a webhook they are dropped."""

    def __init__(self, process: Process, learning: Learning) -> None:
        self.process, self._learning = process, learning
        self.thread = RepeatingThread("webhook", LOOK_EVERY, self.deliver, process.database, process.thread_failed)

    def deliver(self) -> None:
        """Send what is due of rankers learned here and, in the process in charge, of those that nobody learns."""
        process, now, leases = self.process, self.process.clock(), self._learning.leases
        due = process.database.read(lambda c: experiments.due_messages(c, now))
        held = {name for name, fold in list(self._learning.folds.items()) if fold.held}
        others = leases.learned() if due and leases.in_charge else None
        for one in due:
            unlearned = others is not None and one.ranker not in others
            if (one.ranker in held or unlearned) and not self.thread.stopping:
                self._send(one)
        counts = process.database.read(experiments.waiting_messages)
        for name in held:
            process.metrics.gauge("webhook_notifications_waiting", counts.get(name, 0), ranker=name)

    def _send(self, one: WebhookMessage) -> None:
        process, now = self.process, self.process.clock()
        if not process.settings.webhook:
            process.writer.do(lambda c: experiments.delete_message(c, one.id))
            return
        problem = self._post(one)
        if problem is None:
            process.writer.do(lambda c: experiments.delete_message(c, one.id))
            process.metrics.count("webhook_notifications_total", ranker=one.ranker, result="delivered")
            logger.info("ranker %s: the webhook has accepted notification %s", one.ranker, one.id)
        elif now - one.created > GIVE_UP:
            process.writer.do(lambda c: experiments.delete_message(c, one.id))
            process.metrics.count("webhook_notifications_total", ranker=one.ranker, result="given-up")
            logger.error("ranker %s: notification %s is dropped after a day: %s", one.ranker, one.id, problem)
        else:
            # Random, so that services that lost one webhook do not return to it all at once.
            pause = min(FIRST_PAUSE * 2.0**one.attempts, LONGEST_PAUSE) * random.uniform(0.75, 1.25)
            process.writer.do(lambda c: experiments.retry_message(c, one.id, now + pause))
            process.metrics.count("webhook_notifications_total", ranker=one.ranker, result="failed")
            logger.warning(
                "ranker %s: the webhook has not accepted it, again in %.0f s: %s",
                one.ranker,
                pause,
                problem,
            )

    def _post(self, one: WebhookMessage) -> str | None:
        """None if the webhook has accepted it, else what is wrong; without its address, which may hold a secret."""
        import httpx  # only those with a webhook wait for it to load

        settings = self.process.settings
        headers = {"Content-Type": "application/json", "X-Rankloop-Notification": one.id}
        if settings.webhook_secret:
            headers["X-Rankloop-Signature"] = signature(settings.webhook_secret, one.body)
        try:
            answer = httpx.post(settings.webhook, content=one.body, headers=headers, timeout=TIMEOUT)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}: no answer within {TIMEOUT:g} s, or no connection"
        return None if answer.is_success else f"it answered {answer.status_code}"


def signature(secret: str, body: bytes) -> str:
    """Value of the header `X-Rankloop-Signature`, for a receiver that knows the secret.

    >>> signature("secret", b"{}")[:20]
    'sha256=77325902caca8'
    """
    return "sha256=" + hmac.new(secret.encode(), body, "sha256").hexdigest()
