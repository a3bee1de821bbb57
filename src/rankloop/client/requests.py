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
    """Every method of the clients, as steps."""

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
        """Create a ranker or change it; give `spec` as a whole or its fields by name.

        client.put_ranker("shop", learner="pairrank", features=["bm25", "price"], exposure="shadow")

        Fields that are left out keep their values, so the same call can be sent with every deployment. Fields of a
        `Spec` that have their default also keep their values: to reset one, give it by name.
        `renamed={"price": "price_eur"}` renames a feature and keeps what was learned.

        Parameters
        ----------
        wait
            Wait until its kernels are compiled. Until then a new ranker has `ready=False` and returns the baseline.
        if_match
            The `etag` of a status: change the ranker only if it has not changed since.
        acknowledge_demotion
            Raise the exposure although the guardrail has put the ranker into shadow.
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
        """Wait until the kernels of a ranker are compiled in the process that answers."""
        end = time.monotonic() + seconds
        while not (status := (yield from self.ranker(name))).ready:
            if time.monotonic() >= end:
                raise ServiceUnavailable(
                    f"ranker {name!r} is not ready after {seconds:g} seconds: {status.waiting_for}; `rankloop compile` "
                    "compiles ahead; see the log of the service",
                    error="not-ready",
                )
            yield 0.1
        return status

    def ranker(self, name: str) -> Steps[RankerStatus]:
        """The status of a ranker."""
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
        """The ranking to show. Give candidates in the order of the baseline ranking.

        answer = client.rank("shop", [{"id": "hat", "features": {"bm25": 0.1, "price": 9.0}}], k=1)
        [item.id for item in answer.items]
        client.rank("shop", ids=["hat", "shoe"], features=np.array([[0.1, 9.0], [0.7, 49.0]]))  # the same, quicker
        client.rank("shop", ids=["hat", "shoe"], fields={"device": "phone"})  # features come from a catalog

        If the service does not answer within `rank_timeout`, cannot be reached or fails, the answer is the baseline
        ranking: `fallback` is True, `reason` names the cause and `impression_id` is None. Without candidates the
        answer has no items, and no request is sent. Raises `InvalidInput` or `ServiceError` for errors of the program.

        Parameters
        ----------
        name
            Which ranker.
        candidates
            `Candidate`s, dicts with id and features (by name or as a list), or a `rankloop.Candidates`.
        ids, features
            Instead of candidates: a list of ids, and a table with a row for each. An array or a list of rows has its
            columns in the order of the ranker's spec; a frame (pandas, polars, Arrow) or a dictionary of columns has
            them by name. NaN and None are missing values, replaced by the spec's defaults. Arrays of float32 are sent
            as float32, all else as float64. Features that the spec declares are computed by the service, not sent.
        fields
            Fields of this request, for declared features that read them.
        query, k, user
            As in `RankHead`. A `rankloop.Candidates` has its own query. Without `k` a fallback has all candidates.
        request_id
            The same id gets the same answer. Generated if not given, so that a retry is not a second impression.
        explain
            Ask for the contribution of each feature to the scores.
        token
            Ask for a token with which a browser may report clicks without a key (docs/browser.md).
        pinned, excluded, quotas, groups
            Rules of the ranking (docs/rules.md): positions by id; ids; at most so many per value of a field; and
            values of fields that are not features. A fallback ignores quotas.
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
        """Report the clicks on a ranking (none if left out), and that the user has finished with it.

        client.click(answer, ["hat", "shoe"])  # or client.click(impression_id, …)
        client.click(answer, ["hat"], final=False)  # more may follow
        client.click(answer, rewards={"hat": 1.0}, seen=5)  # a purchase; five positions were viewed

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
            Rewards by id, in the unit that the ranker's `reward` declares, else from 0 to 1; and how many positions
            were viewed, if that is known (docs/feedback.md).
        final
            True closes the impression: it is learned now, and later clicks are answered `late`. With False the service
            joins all events until the attribution window ends. (Events of `feedback` are not final by default.)
        event_id
            Set it if the event must count once however often you call this; generated if not given.
        """
        impression = answer.impression_id if isinstance(answer, RankAnswer) else answer
        said = {"clicks": ids_of(clicked), "rewards": rewards, "seen": seen}
        event = {"event_id": event_id, "impression_id": impression, **said, "final": final}
        sent = yield from self.feedback(event)
        return None if sent is None else sent.results[0]

    def series(self, name: str, seconds: int = 900, step: int | None = None) -> Steps[Series]:
        """Clicks, exploration, lag and other measures of the last `seconds`, in steps of time."""
        path = f"{ranker_path(name)}/series?seconds={int(seconds)}" + (f"&step={int(step)}" if step else "")
        return (yield from self.ask(Series, "GET", path))

    def impressions(self, name: str, limit: int = 20) -> Steps[list[ShownList]]:
        """The latest impressions, newest first, with explored positions and feedback."""
        return (yield from self.ask(list[ShownList], "GET", f"{ranker_path(name)}/impressions?limit={int(limit)}"))

    def weights(self, name: str, limit: int = 30) -> Steps[Weights]:
        """The weights of a linear ranker, largest first."""
        return (yield from self.ask(Weights, "GET", f"{ranker_path(name)}/weights?limit={int(limit)}"))

    def movement(self, name: str, limit: int = 100) -> Steps[Movement]:
        """Distance from the baseline ranking over the latest impressions, remembered queries, and drift."""
        return (yield from self.ask(Movement, "GET", f"{ranker_path(name)}/movement?limit={int(limit)}"))

    def versions(self, name: str) -> Steps[list[VersionInfo]]:
        """The stored versions."""
        return (yield from self.ask(list[VersionInfo], "GET", f"{ranker_path(name)}/versions"))

    def keep_version(self, name: str, note: str = "", *, force: bool = False) -> Steps[VersionInfo]:
        """Store what was learned so far as a version that never changes.

        Raises `ServiceError` with the error "not-learned" if acknowledged outcomes are not learned yet; with `force`
        the version is stored without them.
        """
        body = VersionRequest(note=note, force=force)
        return (yield from self.act(VersionInfo, "POST", f"{ranker_path(name)}/versions", body))

    def lineage(self, name: str) -> Steps[list[Generation]]:
        """Resets and rollbacks of a ranker, newest first."""
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
        """Serve a version, or "live" for the learning state. Without one, the current state is stored and served, with
        `force` even if acknowledged outcomes are not learned yet."""
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
        """Serve a version and continue learning from it; without one the newest, so a second rollback undoes the first.

        Raises `ServiceError` with the error "not-learned" if acknowledged outcomes are not learned yet; with `force`
        they are learned on top of the version.
        """
        return (yield from self._change(name, "rollback", VersionRequest(version, note, force), if_match))

    def reset(
        self, name: str, note: str = "", *, if_match: str | None = None, force: bool = False
    ) -> Steps[RankerStatus]:
        """Start again with nothing learned; the old state is stored as a version.

        Raises `ServiceError` with the error "not-learned" if acknowledged outcomes are not learned yet; with `force`
        they are learned afterwards.
        """
        return (yield from self._change(name, "reset", VersionRequest(note=note, force=force), if_match))

    def pause(self, name: str) -> Steps[RankerStatus]:
        """Stop learning: the ranker still ranks, feedback is stored but not learned."""
        return (yield from self._change(name, "pause"))

    def resume(self, name: str) -> Steps[RankerStatus]:
        """Learn from new feedback again."""
        return (yield from self._change(name, "resume"))

    def start_experiment(
        self, /, name: str, against: str | int = "base", *, share: float = 0.2, **terms: Any
    ) -> Steps[Experiment]:
        """Compare a ranker with something else on a share of its requests.

        client.start_experiment("shop", "base", share=0.1)  # or the number of a version, "live", the name of a ranker

        Parameters
        ----------
        name
            Which ranker.
        against
            "base" is the baseline ranking.
        share, terms
            As in `ExperimentRequest`: mixing, metric, exposure, alpha, effect, note.
        """
        body = converted({"against": against, "share": share, **terms}, ExperimentRequest, "the experiment")
        return (yield from self.act(Experiment, "POST", f"{ranker_path(name)}/experiments", body))

    def experiments(self, name: str) -> Steps[list[Experiment]]:
        """The experiments and guardrails of a ranker, newest first."""
        return (yield from self.ask(list[Experiment], "GET", f"{ranker_path(name)}/experiments"))

    def experiment(self, name: str, number: int) -> Steps[Experiment]:
        """The state of an experiment; its intervals hold at any time."""
        return (yield from self.ask(Experiment, "GET", f"{ranker_path(name)}/experiments/{int(number)}"))

    def stop_experiment(self, name: str, number: int) -> Steps[Experiment]:
        """Stop an experiment; its results are kept."""
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
        """Who changed what, newest first; of one ranker if it is given."""
        path = f"/v1/audit?limit={int(limit)}" + ("" if ranker is None else f"&ranker={segment('ranker', ranker)}")
        return (yield from self.ask(list[Change], "GET", path))

    def catalogs(self) -> Steps[list[CatalogInfo]]:
        """All catalogs."""
        return (yield from self.ask(list[CatalogInfo], "GET", "/v1/catalogs"))

    def ready(self) -> Steps[bool]:
        """Whether the service accepts requests now. Asks once."""
        reply = yield Call("GET", "/readyz")
        return reply is not None and reply.status == 200

    def wait_ready(self, seconds: float = 30.0) -> Steps[None]:
        """Wait until the service is ready."""
        end = time.monotonic() + seconds
        while not (yield from self.ready()):
            if time.monotonic() >= end:
                raise ServiceUnavailable(
                    f"GET {self.url}/readyz: not ready after {seconds:g} seconds; check that the service is running "
                    "at this URL, and see its log",
                    error="not-ready",
                )
            yield min(0.1, max(end - time.monotonic(), 0.0))

    def metrics(self) -> Steps[str]:
        """The metrics of the service, in the text format of Prometheus."""
        return (yield from self.exchange(Call("GET", "/metrics"))).body.decode()

    def _change(self, name: str, what: str, body: Any = None, if_match: str | None = None) -> Steps[RankerStatus]:
        return (yield from self.act(RankerStatus, "POST", f"{ranker_path(name)}/{what}", body, if_match))


def _of_fallback(event: FeedbackEvent | Mapping[str, Any]) -> bool:
    """Whether an event is about a fallback, which is not stored."""
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
        """Add or replace items, in as many requests as needed. No items create an empty catalog.

        client.catalog("shop").put([{"id": "hat", "price": 9.0, "brand": "acme"}]).counts

        The answer counts all items and has receipts of the rejected ones, with their line from 1 on.

        Parameters
        ----------
        items
            Dictionaries with an `id` and fields, or the same as JSON in bytes. Any iterable, however long.
        on_progress
            Called after each request with the number of items sent so far.
        """
        return (yield from self._sent("PUT", self._path, items, on_progress))

    def patch(
        self, items: Iterable[Mapping[str, Any] | bytes], on_progress: Progress | None = None
    ) -> Steps[CatalogAnswer]:
        """Change only the fields that are sent; None removes one."""
        return (yield from self._sent("PATCH", self._path, items, on_progress))

    def delete(self, ids: Iterable[str | int]) -> Steps[CatalogAnswer]:
        """Delete items."""
        return (yield from self._sent("POST", f"{self._path}/delete", ids, None))

    def clear(self) -> Steps[int]:
        """Delete all items; how many there were."""
        return (yield from self.exchange.act(Emptied, "DELETE", self._path)).deleted

    def get(self, item: str | int) -> Steps[dict[str, Any]]:
        """The fields of one item."""
        path = f"{self._path}/{segment('id', str(item))}"
        return (yield from self.exchange.ask(Entry, "GET", path)).fields

    def info(self) -> Steps[CatalogInfo]:
        """Number of items, their fields, and the memory they take."""
        return (yield from self.exchange.ask(CatalogInfo, "GET", self._whole))

    def drop(self, force: bool = False) -> Steps[None]:
        """Delete the catalog, items and users; with `force` even if rankers use it."""
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
    """Lines of JSON, as many as fit into a request."""
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
