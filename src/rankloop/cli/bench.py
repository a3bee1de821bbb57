"""`rankloop load`: a bounded load test of a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.service.load_test.load import LoadReport, Maximum, OnProgress, Progress


def add_to(app: App) -> None:
    """Register the command."""
    app.command(load)


def load(
    url: str = "http://127.0.0.1:8080",
    /,
    *,
    key: Annotated[str | None, Parameter(env_var="RANKLOOP_KEY", show_default=False)] = None,
    rate: float = 100.0,
    seconds: float = 30.0,
    candidates: int = 100,
    features: int = 136,
    k: int = 10,
    by_name: bool = False,
    learner: str = "pairrank",
    exposure: str = "full",
    user: str = "navigational",
    feedback: float = 1.0,
    batch_ms: float = 0.0,
    connections: int = 32,
    ranker: str = "load",
    seed: int = 0,
    find_maximum: bool = False,
    limit_ms: float = 15.0,
    clean_up: bool = False,
    yes_remote: bool = False,
    json: bool = False,
) -> None:
    """Send requests to a running service at a constant rate, let simulated users click, and print how it coped.

    Latency counts from the time a request was due, so a service that stalls pays for everyone who waited. Users click
    on what a hidden truth says is good: if the service learns, the reciprocal rank of their first click grows from the
    first fifth of the test to the last. Start a service in another terminal first. A ranker called `load` is made
    afresh and stays there when the test is over, unless `--clean-up` is given.

    Example: rankloop load --rate 100 --seconds 30

    Example: rankloop load http://127.0.0.1:8080 --find-maximum --limit-ms 15 --json

    Parameters
    ----------
    url
        The service, plain http.
    key
        Its key, if it wants one.
    rate
        Requests to rank per second; with --find-maximum the first to try.
    seconds
        How long, at most 3600; --find-maximum takes 8 a step.
    candidates
        Candidates in a request.
    features
        Features of a candidate.
    k
        Positions shown.
    by_name
        Send features by name, not as lists: about twice the bytes.
    learner
        A name from `rankloop learners`, with parameters if wanted: `pairrank?alpha=0.1`.
    exposure
        full, bounded or shadow; in shadow users are shown the base order, and see nothing of what is learned.
    user
        perfect, navigational, informational or almost-random.
    feedback
        Share of lists that get feedback, 50 to 200 ms after the answer.
    batch_ms
        Gather feedback for so long, at most 50, and send it together; 0 sends each event alone.
    connections
        Requests under way at once; more wait in line, and their wait counts.
    ranker
        Name of the ranker to make; one that no load test has made is not touched.
    seed
        Same seed, same requests and users.
    find_maximum
        Step the rate up by 1.3 until p99 is above the limit or less than 97 % of the rate is achieved.
    limit_ms
        What p99 may be, for --find-maximum.
    clean_up
        Delete the ranker at the end.
    yes_remote
        Allow a service on another machine. Do so only where you may: this is load, and real users would feel it.
    json
        Print one JSON object instead of tables.
    """
    from rankloop.core.errors import InvalidParameter
    from rankloop.service.load_test import load as tester

    url = url if "://" in url else f"http://{url}"
    if not yes_remote and not tester.is_local(url):
        raise InvalidParameter(
            f"{url} is not on this machine; a load test may hurt others: give --yes-remote if it is yours to load"
        )
    plan = tester.LoadPlan(
        url=url,
        key=key,
        ranker=ranker,
        candidates=candidates,
        features=features,
        k=k,
        by_name=by_name,
        rate=rate,
        seconds=seconds,
        connections=connections,
        feedback=feedback,
        batch_ms=batch_ms,
        user=user,
        learner=learner,
        exposure=exposure,
        seed=seed,
        clean_up=clean_up,
    )
    with _out.progress_bars() as bars:
        on_progress = _shown_on(bars)
        if find_maximum:
            found = tester.start(tester.find_maximum(plan, limit_ms=limit_ms, on_progress=on_progress))
        else:
            report = tester.start(tester.run(plan, on_progress))
    if find_maximum:
        _print_maximum(found, json)
    elif json:
        _out.print_json(report.as_dict())
    else:
        _print_report(report)


def _shown_on(bars: Any) -> OnProgress:
    """A bar over the requests; each rate that is tried starts it anew."""
    task = bars.add_task("preparing", total=None)

    def on_progress(progress: Progress) -> None:
        bars.update(task, description=f"{progress.rate:.4g}/s", completed=progress.sent, total=progress.total)

    return on_progress


def _print_report(report: LoadReport) -> None:
    plan = report.plan
    title = (
        f"{plan.url} · {plan.learner} · {plan.candidates} x {plan.features} · {plan.rate:.4g}/s for {plan.seconds:g} s"
    )
    measured = {"rank": report.rank, "feedback": report.feedback, "tester late": report.generator_late}
    rows = [[name, f"{found.n:,}", *(f"{value:.2f}" for value in found[1:])] for name, found in measured.items()]
    _out.print_table(title, ["milliseconds", "requests", "mean", "p50", "p90", "p99", "p99.9", "max"], rows)
    first, last = report.first_fifth, report.last_fifth
    facts = {
        "achieved": f"{report.achieved_rate:.4g}/s of {plan.rate:.4g}/s",
        "errors": _counted(report.errors),
        "fallbacks": f"{report.fallbacks:,}",
        "receipts": _counted(report.receipts),
        "lists with a click": f"{first.click_rate:.3f} -> {last.click_rate:.3f} (first and last fifth)",
        "reciprocal rank of the first click": f"{first.reciprocal_rank:.3f} -> {last.reciprocal_rank:.3f}",
        "learner lag": "not told"
        if report.lag is None
        else f"at most {report.lag:,}, {report.samples[-1].lag} at the end",
        "memory of the service": _memory(report),
        "tester's own CPU": f"{report.generator_cpu:.0%} of a core",
    }
    _out.print_table("", ["", ""], [[name, value] for name, value in facts.items()], numbers_from=2)


def _print_maximum(found: Maximum, json: bool) -> None:
    if json:
        steps = [{"verdict": verdict or "sustained", **report.as_dict()} for report, verdict in found.steps]
        _out.print_json({"rate": found.rate, "limit_ms": found.limit_ms, "steps": steps})
        return
    rows = [
        [
            f"{report.plan.rate:.1f}",
            f"{report.achieved_rate:.1f}",
            *(f"{value:.2f}" for value in (report.rank.p50, report.rank.p99, report.rank.max, report.feedback.p99)),
            f"{sum(report.errors.values()):,}",
            "" if report.lag is None else f"{report.lag:,}",
            f"{report.generator_cpu:.0%}",
            verdict or "sustained",
        ]
        for report, verdict in found.steps
    ]
    columns = ["asked/s", "achieved/s", "p50 ms", "p99 ms", "max ms", "feedback p99", "errors", "lag", "tester CPU", ""]
    _out.print_table(f"rates with p99 of at most {found.limit_ms:g} ms", columns, rows, numbers_from=0)
    if found.rate is None:
        print("no rate that was tried is sustained; try a lower --rate or a higher --limit-ms")
    else:
        print(f"highest sustained rate: {found.rate:.1f} requests/s")


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items())) or "none"


def _memory(report: LoadReport) -> str:
    if report.rss_growth is None:
        return "not told"
    last = [sample.rss_bytes for sample in report.samples if sample.rss_bytes is not None][-1]
    return f"{last / 1e6:,.1f} MB, {report.rss_growth / 1e6:+,.1f} MB in the test"
