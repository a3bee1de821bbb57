"""What the methods of the clients do, without a network: each is a generator of requests, pauses and file work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal
from uuid import uuid4

import msgspec

from rankloop.client import payloads
from rankloop.client.exchange import (
    Breaker,
    Call,
    Exchange,
    RejectedEvent,
    ServiceError,
    ServiceUnavailable,
    Steps,
    baseline,
    encoded,
    fallback_reason,
    ranker_path,
    segment,
)
from rankloop.client.feedback_queue import FeedbackQueue, OnRejected, log_rejected
from rankloop.client.payloads import ReadyCandidates, as_event, converted, ids_of
from rankloop.core.errors import InvalidInput
from rankloop.wire.basics import Quota
from rankloop.wire.calls import Candidate, FeedbackAnswer, FeedbackEvent, RankAnswer, RankColumns, Receipt
from rankloop.wire.catalog import CatalogAnswer, CatalogInfo, Emptied, Entry, LineReceipt
from rankloop.wire.experiments import Experiment, ExperimentRequest
from rankloop.wire.monitoring import Movement, Series, ShownList, Weights
from rankloop.wire.rankers import Generation, RankerStatus, Spec, SpecChanges, VersionInfo, VersionRequest
from rankloop.wire.service import Change, Erased, UserExport


class Requests(Exchange):
    """What both clients do, as steps."""

    def __init__(
        self,
        url: str,
        retries: int,
        rank_timeout: float = 0.25,
        queue: FeedbackQueue | None = None,
        on_rejected: OnRejected = log_rejected,
    ) -> None:
        super().__init__(url, retries)
        self.rank_timeout, self.queue, self.on_rejected = rank_timeout, queue, on_rejected
        self.breaker = Breaker()

    def put_ranker(
        self,
        /,
        name: str,
        spec: Spec | Mapping[str, Any] | None = None,
        *,
        wait: bool = False,
        if_match: str | None = None,
        acknowledge_demotion: bool = False,
        **settings: Any,
    ) -> Steps[RankerStatus]:
        """Make a ranker, or change the one there is; `spec` as a whole or its fields by name.

        client.put_ranker("shop", learner="pairrank", features=["bm25", "price"], exposure="shadow")

        Fields that are left out keep their values, so the same call can be sent with every deployment. So do the
        fields of a `Spec` that have their default: to set one back to its default, give it by name.
        `renamed={"price": "price_eur"}` says that a feature has another name now and keeps what was learned.

        Parameters
        ----------
        wait
            Until its kernels are compiled, too; else a new ranker may say `ready=False`, and show your order so long.
        if_match
            The `etag` of a status: change the ranker only if it is still as it was then.
        acknowledge_demotion
            Put exposure up though the guardrail has put the ranker into shadow.
        """
        given = dict(spec or {}) if not isinstance(spec, Spec) else _set_fields(spec)
        whole = converted({**given, **settings}, SpecChanges, f"the spec of ranker {name!r}")
        path = ranker_path(name) + "?acknowledge_demotion=true" * acknowledge_demotion
        status = yield from self.act(RankerStatus, "PUT", path, whole, if_match)
        return (yield from self.wait_compiled(name)) if wait and not status.ready else status

    def patch_ranker(
        self, /, name: str, *, if_match: str | None = None, acknowledge_demotion: bool = False, **changes: Any
    ) -> Steps[RankerStatus]:
        """Change some fields of a ranker's spec and leave the others as they are.

        client.patch_ranker("shop", exposure="full", k=20)
        """
        whole = converted(changes, SpecChanges, f"the change of ranker {name!r}")
        path = ranker_path(name) + "?acknowledge_demotion=true" * acknowledge_demotion
        return (yield from self.act(RankerStatus, "PATCH", path, whole, if_match))

    def wait_compiled(self, name: str, seconds: float = 300.0) -> Steps[RankerStatus]:
        """Wait until a ranker's kernels are compiled in the process that answers, so that its own lists are shown."""
        end = time.monotonic() + seconds
        while not (status := (yield from self.ranker(name))).ready:
            if time.monotonic() >= end:
                raise ServiceUnavailable(
                    f"ranker {name!r} is not ready after {seconds:g} seconds: {status.waiting_for}; `rankloop compile` "
                    "compiles ahead, and the service's log says what is wrong",
                    error="not-ready",
                )
            yield 0.1
        return status

    def ranker(self, name: str) -> Steps[RankerStatus]:
        """A ranker as it stands."""
        return (yield from self.ask(RankerStatus, "GET", ranker_path(name)))

    def rankers(self) -> Steps[list[RankerStatus]]:
        """All rankers."""
        return (yield from self.ask(list[RankerStatus], "GET", "/v1/rankers"))

    def delete_ranker(self, name: str) -> Steps[None]:
        """Delete a ranker and all that it learned."""
        yield from self.act(type(None), "DELETE", ranker_path(name))

    def rank(
        self,
        name: str,
        candidates: ReadyCandidates | Iterable[Candidate | Mapping[str, Any]] | None = None,
        *,
        ids: Any = None,
        features: Any = None,
        query: str | None = None,
        k: int | None = None,
        user: str | None = None,
        request_id: str | None = None,
        explain: bool = False,
        token: bool = False,
        fields: Mapping[str, Any] | None = None,
        pinned: Mapping[Any, int] | None = None,
        excluded: Iterable[Any] = (),
        quotas: Iterable[Quota | Mapping[str, Any]] = (),
        groups: Mapping[str, Iterable[Any]] | None = None,
    ) -> Steps[RankAnswer]:
        """The ranking to show. Candidates come in the order you would show them without rankloop.

        answer = client.rank("shop", [{"id": "hat", "features": {"bm25": 0.1, "price": 9.0}}], k=1)
        [item.id for item in answer.items]
        client.rank("shop", ids=["hat", "shoe"], features=np.array([[0.1, 9.0], [0.7, 49.0]]))  # the same, quicker
        client.rank("shop", ids=["hat", "shoe"], fields={"device": "phone"})  # features come from a catalog

        If the service does not answer within `rank_timeout`, cannot be reached or fails, the answer is the baseline
        ranking: `fallback` is True, `reason` names the cause and `impression_id` is None. Without candidates the
        answer has no items, and no request is sent. Raises `InvalidInput` or `ServiceError` for what only a change of
        the program can fix.

        Parameters
        ----------
        name
            Which ranker.
        candidates
            `Candidate`s, dicts with id and features (by name or as a list), or a `rankloop.Candidates`.
        ids, features
            Instead of candidates: a list of ids, and a table with a row for each. An array, or a list of rows, has its
            columns in the order of the ranker's spec; a frame of pandas or polars, or a dictionary of columns, has
            them by name. NaN and None mark values that are missing: the spec's default stands for them. Numbers arrive
            as they are; an array of float32 travels in half the bytes. Features that the ranker's spec declares are
            computed by the service and not sent.
        fields
            What is known of this request, for features that are declared of it.
        query, k, user
            As the service has them (`RankHead`). A `rankloop.Candidates` brings its own query. Give `k` where the
            length of the ranking matters: a fallback without it has all candidates.
        request_id
            The same id gets the same answer. Made up if not given, so that a retry is not a second impression.
        explain
            Ask for each feature's share of the scores.
        token
            Ask for a token with which a browser may report clicks on this list without a key (docs/browser.md).
        pinned, excluded, quotas, groups
            The rules of a shop (docs/rules.md): id and position; ids; at most so many of a kind in the first positions;
            and for a kind that is no feature its value for each candidate. A fallback ignores quotas.
        """
        end = time.monotonic() + self.rank_timeout
        if query is None:
            query = candidates.query if isinstance(candidates, ReadyCandidates) else ""
        head: dict[str, Any] = {
            "query": query,
            "k": k,
            "request_id": request_id or uuid4().hex,
            "user": user,
            "token": token,
            **payloads.rules(pinned or {}, excluded, quotas, groups or {}),
        }
        if fields is not None:
            head["fields"] = dict(fields)
        request = payloads.request(candidates, ids, features, **head)
        path = f"{ranker_path(name)}/rank" + ("?explain=true" if explain else "")
        if isinstance(request, RankColumns) and not request.ids:
            return baseline(name, request, "no candidates", fallback=False)
        if (reason := self.breaker.skipped(time.monotonic())) is not None:
            return baseline(name, request, reason)
        try:
            answer = yield from self.asked(RankAnswer, Call("POST", path, encoded(request), end=end))
        except ServiceError as error:
            reason = fallback_reason(error)
            if reason is not None:
                self.breaker.failed(reason, time.monotonic())
                return baseline(name, request, reason)
            self.breaker.answered()
            raise
        self.breaker.answered()
        return answer

    def feedback(
        self, events: FeedbackEvent | Mapping[str, Any] | Iterable[FeedbackEvent | Mapping[str, Any]]
    ) -> Steps[FeedbackAnswer | None]:
        """Report what users did: one event or many. A dict without event_id gets one.

        client.feedback([{"impression_id": answer.impression_id, "clicks": ["hat"]}])

        The events are queued and sent in the background, and the answer is None. With `Client(queue=0)` they are sent
        at once, the answer has a receipt for each, and `RejectedEvent` is raised if there was one event and the
        service rejected it. Events whose impression_id is None, which is that of a fallback, are not sent.
        """
        single = isinstance(events, FeedbackEvent | Mapping)
        many = [events] if isinstance(events, FeedbackEvent | Mapping) else list(events)
        ready = [as_event(event, f"event {i}") for i, event in enumerate(many) if not _of_fallback(event)]
        if self.queue is not None:
            if ready:
                put = partial(self.queue.put, ready)
                if self.queue.path is None:
                    put()
                else:
                    yield put
            return None
        sent = FeedbackAnswer([], {})
        if ready:
            sent = yield from self.ask(FeedbackAnswer, "POST", "/v1/feedback", ready)
        for event, receipt in zip(ready, sent.results, strict=False):
            if receipt.status == "rejected" and single:
                raise _rejected(receipt)
            if receipt.status == "rejected":
                self.on_rejected(receipt, event)
        if len(ready) == len(many):
            return sent
        receipts = iter(sent.results)
        results = [_unsent(event) if _of_fallback(event) else next(receipts) for event in many]
        return FeedbackAnswer(results, dict(Counter(one.status for one in results)))

    def click(
        self,
        answer: RankAnswer | str | None,
        clicked: Iterable[Any] = (),
        *,
        rewards: Mapping[Any, float] | None = None,
        seen: int | None = None,
        final: bool = True,
        event_id: str | None = None,
    ) -> Steps[Receipt | None]:
        """Report all that was clicked in a ranking, none if left out, and that the user is done with it.

        client.click(answer, ["hat", "shoe"])  # or client.click(impression_id, …), where only that was kept
        client.click(answer, ["hat"], final=False)  # at the click, while the user still looks: more may follow
        client.click(answer, rewards={"hat": 1.0}, seen=5)  # the hat was bought, and five positions came into view

        The event is queued and sent in the background, and None is returned. With `Client(queue=0)` it is sent at once;
        the return value is its receipt, or `RejectedEvent` is raised. For a fallback, which has no impression_id,
        nothing is sent: the receipt has the status "orphan".

        Parameters
        ----------
        answer
            What `rank` returned, or its impression_id.
        clicked
            The ids that were clicked.
        rewards, seen
            What was worth more or less than a click, by id: in the unit that the ranker's `reward` declares, else
            from 0 to 1. How many positions came into view, if that is known (docs/feedback.md).
        final
            Nothing more will come: the list is learned now, and a later click on it is answered `late` and not learned.
            With False the service waits for the ranker's window to close, and joins all that was reported until then.
            (An event of `feedback` is not final unless it says so, as in HTTP.)
        event_id
            Yours, if it shall count once however often you call this; made up if not given.
        """
        impression = answer.impression_id if isinstance(answer, RankAnswer) else answer
        said = {"clicks": ids_of(clicked), "rewards": rewards, "seen": seen}
        event = {"event_id": event_id, "impression_id": impression, **said, "final": final}
        sent = yield from self.feedback(event)
        return None if sent is None else sent.results[0]

    def series(self, name: str, seconds: int = 900, step: int | None = None) -> Steps[Series]:
        """How a ranker has fared in the last `seconds`: clicks, exploration, lag and the like, in steps of time."""
        path = f"{ranker_path(name)}/series?seconds={int(seconds)}" + (f"&step={int(step)}" if step else "")
        return (yield from self.ask(Series, "GET", path))

    def impressions(self, name: str, limit: int = 20) -> Steps[list[ShownList]]:
        """The latest lists, the newest first, with what was tried in them and what was clicked."""
        return (yield from self.ask(list[ShownList], "GET", f"{ranker_path(name)}/impressions?limit={int(limit)}"))

    def weights(self, name: str, limit: int = 30) -> Steps[Weights]:
        """What a linear ranker thinks of its features, the largest weights first."""
        return (yield from self.ask(Weights, "GET", f"{ranker_path(name)}/weights?limit={int(limit)}"))

    def movement(self, name: str, limit: int = 100) -> Steps[Movement]:
        """How far a ranker has moved from your order over its latest lists, what it remembers, what it has noticed."""
        return (yield from self.ask(Movement, "GET", f"{ranker_path(name)}/movement?limit={int(limit)}"))

    def versions(self, name: str) -> Steps[list[VersionInfo]]:
        """The versions that were kept."""
        return (yield from self.ask(list[VersionInfo], "GET", f"{ranker_path(name)}/versions"))

    def keep_version(self, name: str, note: str = "", *, force: bool = False) -> Steps[VersionInfo]:
        """Keep what was learned so far as a version that never changes.

        Raises `ServiceError` with the error "not-learned" if acknowledged outcomes are not learned yet and would not be
        in it; with `force` it is kept without them.
        """
        body = VersionRequest(note=note, force=force)
        return (yield from self.act(VersionInfo, "POST", f"{ranker_path(name)}/versions", body))

    def lineage(self, name: str) -> Steps[list[Generation]]:
        """Where what a ranker knows comes from: its resets and rollbacks, the newest first."""
        return (yield from self.ask(list[Generation], "GET", f"{ranker_path(name)}/lineage"))

    def promote(
        self,
        name: str,
        version: int | Literal["live"] | None = None,
        note: str = "",
        *,
        if_match: str | None = None,
        force: bool = False,
    ) -> Steps[RankerStatus]:
        """Serve a version, or "live" for what is being learned; without one, what is learned now is kept and served,
        with `force` even if acknowledged outcomes are not learned yet."""
        return (yield from self._change(name, "promote", VersionRequest(version, note, force), if_match))

    def rollback(
        self,
        name: str,
        version: int | None = None,
        note: str = "",
        *,
        if_match: str | None = None,
        force: bool = False,
    ) -> Steps[RankerStatus]:
        """Serve and go on learning from a version; without one the newest, so a second rollback undoes the first.

        Raises `ServiceError` with the error "not-learned" if acknowledged outcomes are not learned yet; with `force`
        they are learned on top of the version.
        """
        return (yield from self._change(name, "rollback", VersionRequest(version, note, force), if_match))

    def reset(
        self, name: str, note: str = "", *, if_match: str | None = None, force: bool = False
    ) -> Steps[RankerStatus]:
        """Begin again with nothing learned; what was is kept as a version.

        Raises `ServiceError` with the error "not-learned" if acknowledged outcomes are not learned yet; with `force`
        they are learned afterwards.
        """
        return (yield from self._change(name, "reset", VersionRequest(note=note, force=force), if_match))

    def pause(self, name: str) -> Steps[RankerStatus]:
        """Stop learning: ranking goes on, feedback is kept but not learned."""
        return (yield from self._change(name, "pause"))

    def resume(self, name: str) -> Steps[RankerStatus]:
        """Learn from what comes from now on."""
        return (yield from self._change(name, "resume"))

    def start_experiment(
        self, /, name: str, against: str | int = "base", *, share: float = 0.2, **terms: Any
    ) -> Steps[Experiment]:
        """Compare what a ranker shows with something else, on a share of its requests.

        client.start_experiment("shop", "base", share=0.1)  # or a version's number, "live", another ranker's name

        Parameters
        ----------
        name
            Which ranker.
        against
            "base" is the order in which candidates are sent.
        share, terms
            As in `ExperimentRequest`: mixing, metric, exposure, alpha, effect, note.
        """
        body = converted({"against": against, "share": share, **terms}, ExperimentRequest, "the experiment")
        return (yield from self.act(Experiment, "POST", f"{ranker_path(name)}/experiments", body))

    def experiments(self, name: str) -> Steps[list[Experiment]]:
        """The experiments and guardrails of a ranker, the newest first."""
        return (yield from self.ask(list[Experiment], "GET", f"{ranker_path(name)}/experiments"))

    def experiment(self, name: str, number: int) -> Steps[Experiment]:
        """How an experiment stands; look as often as you like."""
        return (yield from self.ask(Experiment, "GET", f"{ranker_path(name)}/experiments/{int(number)}"))

    def stop_experiment(self, name: str, number: int) -> Steps[Experiment]:
        """End an experiment; it keeps what it has found."""
        return (yield from self.act(Experiment, "POST", f"{ranker_path(name)}/experiments/{int(number)}/stop"))

    def erase_user(self, user: str) -> Steps[Erased]:
        """Delete what is stored under a user id. After a retry the counts are those of the last try."""
        return (yield from self.ask(Erased, "DELETE", f"/v1/users/{segment('user', user)}"))

    def export_user(self, user: str) -> Steps[UserExport]:
        """Everything that is stored under a user id."""
        path = f"/v1/users/{segment('user', user)}?limit=1000"
        found = page = yield from self.ask(UserExport, "GET", path)
        while page.next is not None:
            page = yield from self.ask(UserExport, "GET", f"{path}&after={segment('after', page.next)}")
            found.impressions += page.impressions
        found.next = None
        return found

    def audit(self, limit: int = 100, ranker: str | None = None) -> Steps[list[Change]]:
        """Who changed what, the newest first; of one ranker if it is given."""
        path = f"/v1/audit?limit={int(limit)}" + ("" if ranker is None else f"&ranker={segment('ranker', ranker)}")
        return (yield from self.ask(list[Change], "GET", path))

    def catalogs(self) -> Steps[list[CatalogInfo]]:
        """All catalogs."""
        return (yield from self.ask(list[CatalogInfo], "GET", "/v1/catalogs"))

    def ready(self) -> Steps[bool]:
        """Whether the service takes requests now. Asks once: no answer is an answer."""
        reply = yield Call("GET", "/readyz")
        return reply is not None and reply.status == 200

    def wait_ready(self, seconds: float = 30.0) -> Steps[None]:
        """Wait until the service is ready, for scripts that have just started it."""
        end = time.monotonic() + seconds
        while not (yield from self.ready()):
            if time.monotonic() >= end:
                raise ServiceUnavailable(
                    f"GET {self.url}/readyz: not ready after {seconds:g} seconds; is the service started, and is this "
                    "its url? Its log says what it waits for",
                    error="not-ready",
                )
            yield min(0.1, max(end - time.monotonic(), 0.0))

    def metrics(self) -> Steps[str]:
        """The service's metrics, in Prometheus' text format."""
        return (yield from self.exchange(Call("GET", "/metrics"))).body.decode()

    def _change(self, name: str, what: str, body: Any = None, if_match: str | None = None) -> Steps[RankerStatus]:
        return (yield from self.act(RankerStatus, "POST", f"{ranker_path(name)}/{what}", body, if_match))


def _of_fallback(event: FeedbackEvent | Mapping[str, Any]) -> bool:
    """Whether an event is about a ranking that was never stored."""
    return isinstance(event, Mapping) and "impression_id" in event and event["impression_id"] is None


def _unsent(event: FeedbackEvent | Mapping[str, Any]) -> Receipt:
    own = event.get("event_id") if isinstance(event, Mapping) else event.event_id
    return Receipt(own, "orphan", "there is no impression_id: the ranking was a fallback, and nothing was sent")


def _rejected(receipt: Receipt) -> RejectedEvent:
    why = receipt.reason or "no reason given"
    return RejectedEvent(f"event {receipt.event_id!r} was rejected: {why}", 422, "rejected", why)


def _set_fields(spec: Spec) -> dict[str, Any]:
    """The fields of a spec that do not have their default."""
    plain = Spec()
    given = msgspec.structs.asdict(spec)
    return {name: value for name, value in given.items() if value != getattr(plain, name)}


LINES, BYTES = 1000, 2**20  # of a call: one that fails is sent again as a whole
Progress = Callable[[int], None]  # lines that have been answered for so far


class CatalogRequests:
    """The items, or the users, of a catalog."""

    def __init__(self, exchange: Exchange, name: str, kind: Literal["items", "users"] = "items") -> None:
        self.exchange, self.name, self.kind = exchange, name, kind
        self._whole = f"/v1/catalogs/{segment('catalog', name)}"
        self._path = f"{self._whole}/{kind}"

    def put(
        self, items: Iterable[Mapping[str, Any] | bytes], on_progress: Progress | None = None
    ) -> Steps[CatalogAnswer]:
        """Add items, or replace all that is known of them; in as many calls as it takes. No items at all make an empty
        catalog, which a ranker can name.

        client.catalog("shop").put([{"id": "hat", "price": 9.0, "brand": "acme"}]).counts

        The answer counts all, and has the receipts of those that were rejected, with their place from 1 on.

        Parameters
        ----------
        items
            Dictionaries with an `id` and fields, or the same as JSON in bytes. Any iterable, however long.
        on_progress
            Called after each call with the number of items answered for.
        """
        return (yield from self._sent("PUT", self._path, items, on_progress))

    def patch(
        self, items: Iterable[Mapping[str, Any] | bytes], on_progress: Progress | None = None
    ) -> Steps[CatalogAnswer]:
        """Change only the fields that are sent; None takes one away."""
        return (yield from self._sent("PATCH", self._path, items, on_progress))

    def delete(self, ids: Iterable[str | int]) -> Steps[CatalogAnswer]:
        """Take items out."""
        return (yield from self._sent("POST", f"{self._path}/delete", ids, None))

    def clear(self) -> Steps[int]:
        """Take all of them out; how many there were."""
        return (yield from self.exchange.act(Emptied, "DELETE", self._path)).deleted

    def get(self, item: str | int) -> Steps[dict[str, Any]]:
        """What is known of one, as it was sent."""
        path = f"{self._path}/{segment('id', str(item))}"
        return (yield from self.exchange.ask(Entry, "GET", path)).fields

    def info(self) -> Steps[CatalogInfo]:
        """How many there are, their fields, the memory they take."""
        return (yield from self.exchange.ask(CatalogInfo, "GET", self._whole))

    def drop(self, force: bool = False) -> Steps[None]:
        """Delete the catalog, items and users; with `force` even if rankers name it."""
        yield from self.exchange.act(type(None), "DELETE", f"{self._whole}?force=true" if force else self._whole)

    def _sent(self, method: str, path: str, lines: Iterable[Any], on_progress: Progress | None) -> Steps[CatalogAnswer]:
        told: list[LineReceipt] = []
        warnings: list[str] = []
        counts: Counter[str] = Counter()
        done = 0
        for some in _portions(lines):
            if any(some):
                reply = yield from self.exchange.exchange(Call(method, path, b"\n".join(some)))
                answer = msgspec.json.decode(reply.body, type=CatalogAnswer)
                counts.update(answer.counts)
                warnings += answer.warnings
                for one in answer.results:
                    if one.status in ("rejected", "unknown"):  # a million that went well need not be kept
                        one.line += done
                        told.append(one)
            done += len(some)
            if on_progress is not None:
                on_progress(done)
        if not done and method == "PUT":  # an empty catalog is made all the same
            yield from self.exchange.exchange(Call(method, path, b"[]"))
        return CatalogAnswer(told, dict(counts), warnings)


def _portions(lines: Iterable[Any]) -> Iterator[list[bytes]]:
    """Lines of JSON, as many as go into a call."""
    if isinstance(lines, str | bytes | Mapping):
        raise InvalidInput(f"items are a {type(lines).__name__}; give a list of them")
    some: list[bytes] = []
    size = 0
    for one in lines:
        try:
            line = one.strip().replace(b"\n", b" ") if isinstance(one, bytes) else msgspec.json.encode(one)
        except (TypeError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"{one!r:.60} cannot be sent as JSON: {error}") from None
        if some and (len(some) == LINES or size + len(line) > BYTES):
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line) + 1
    if some:
        yield some
