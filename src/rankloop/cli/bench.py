"""`rankloop bench`: a load test of a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.service.load_generator import LoadReport, Maximum, OnProgress


def add_to(app: App) -> None:
    """Register the command."""
    app.command(bench)


def bench(
    url: str = "http://127.0.0.1:8080",
    /,
    *,
    key: Annotated[str | None, Parameter(env_var="RANKLOOP_KEY", show_default=False)] = None,
    rate: float = 100.0,
    seconds: float = 30.0,
    candidates: int = 100,
    features: int = 136,
    k: int = 10,
    learner: str = "pairrank",
    exposure: str = "full",
    user: str = "navigational",
    feedback: float = 1.0,
    connections: int = 32,
    ranker: str = "load",
    seed: int = 0,
    find_maximum: bool = False,
    limit_ms: float = 15.0,
    clean_up: bool = False,
    yes_remote: bool = False,
    json: bool = False,
) -> None:
    """Send requests to a running service at a constant rate, simulate users who click, and print latency and learning.

    Latency counts from the time a request was due, so requests that wait behind a stall count in full. Start a service
    in another terminal first. The command creates a ranker named `load`, which remains unless you give `--clean-up`.

    Example: rankloop bench --rate 100 --seconds 30

    Example: rankloop bench http://127.0.0.1:8080 --find-maximum --limit-ms 15 --json

    Parameters
    ----------
    url
        The service, plain http.
    key
        API key, if the service needs one.
    rate
        Rankings per second; with --find-maximum the first rate to try; 0 keeps every connection busy.
    seconds
        Duration, at most 3600; --find-maximum takes 8 per step.
    candidates
        Candidates per request.
    features
        Features per candidate.
    k
        Positions shown.
    learner
        A name from `rankloop learners`, optionally with parameters: `pairrank?alpha=0.1`.
    exposure
        full, bounded or shadow.
    user
        perfect, navigational, informational or almost-random.
    feedback
        Share of impressions that get feedback, 50 to 200 ms after the response.
    connections
        Requests in flight at once; further requests wait, and their wait counts.
    ranker
        Name of the ranker to create; a ranker that no load test created is not touched.
    seed
        The same seed gives the same requests and users.
    find_maximum
        Raise the rate by 30 % per step until p99 exceeds the limit or less than 97 % of the rate is achieved.
    limit_ms
        Highest p99 for --find-maximum.
    clean_up
        Delete the ranker at the end.
    yes_remote
        Allow a service on another machine. Its users would feel the load.
    json
        Print one JSON object instead of tables.
    """
    from urllib.parse import urlsplit

    from rankloop.core.errors import InvalidParameter
    from rankloop.service import load_generator
    from rankloop.service.settings import is_loopback

    url = url if "://" in url else f"http://{url}"
    if not yes_remote and not is_loopback(urlsplit(url).hostname or ""):
        raise InvalidParameter(f"{url} is not on this machine; give --yes-remote if you may put load on it")
    plan = load_generator.LoadPlan(
        url=url,
        key=key,
        ranker=ranker,
        candidates=candidates,
        features=features,
        k=k,
        rate=rate,
        seconds=seconds,
        connections=connections,
        feedback=feedback,
        user=user,
        learner=learner,
        exposure=exposure,
        seed=seed,
        clean_up=clean_up,
    )
    with _out.progress_bars() as bars:
        on_progress = _shown_on(bars)
        if find_maximum:
            found = load_generator.start(load_generator.find_maximum(plan, limit_ms=limit_ms, on_progress=on_progress))
        else:
            report = load_generator.start(load_generator.run(plan, on_progress))
    if find_maximum:
        _print_maximum(found, json)
    elif json:
        _out.print_json(report.as_dict())
    else:
        _print_report(report)


def _shown_on(bars: Any) -> OnProgress:
    task = bars.add_task("preparing", total=None)

    def on_progress(rate: float, sent: int, total: int) -> None:
        bars.update(task, description=f"{rate:.4g}/s", completed=sent, total=total)

    return on_progress


def _print_report(report: LoadReport) -> None:
    plan = report.plan
    title = (
        f"{plan.url} · {plan.learner} · {plan.candidates} x {plan.features} · {plan.rate:.4g}/s for {plan.seconds:g} s"
    )
    measured = {"rank": report.rank, "feedback": report.feedback, "generator late": report.generator_late}
    rows = [[name, f"{found.n:,}", *(f"{value:.2f}" for value in found[1:])] for name, found in measured.items()]
    _out.print_table(title, ["milliseconds", "requests", "mean", "p50", "p90", "p99", "p99.9", "max"], rows)
    first, last = report.first_fifth, report.last_fifth
    facts = {
        "achieved": f"{report.achieved_rate:.4g}/s of {plan.rate:.4g}/s",
        "errors": _counted(report.errors),
        "fallbacks": f"{report.fallbacks:,}",
        "feedback": _counted(report.feedback_status),
        "impressions with a click": f"{first.click_rate:.3f} -> {last.click_rate:.3f} (first and last fifth)",
        "reciprocal rank of the first click": f"{first.reciprocal_rank:.3f} -> {last.reciprocal_rank:.3f}",
        "outcomes not learned yet": "unknown" if report.lag is None else f"at most {report.lag:,}",
        "CPU of the generator": f"{report.generator_cpu:.0%} of a core",
    }
    _out.print_table("", ["", ""], [[name, value] for name, value in facts.items()], numbers_from=2)


def _print_maximum(found: Maximum, json: bool) -> None:
    reasons = [report.not_sustained(found.limit_ms) or "sustained" for report in found.steps]
    if json:
        steps = [{"verdict": reason, **report.as_dict()} for report, reason in zip(found.steps, reasons, strict=True)]
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
            reason,
        ]
        for report, reason in zip(found.steps, reasons, strict=True)
    ]
    columns = ["rate/s", "achieved/s", "p50 ms", "p99 ms", "max ms", "feedback p99", "errors", "lag", "generator", ""]
    _out.print_table(f"rates with p99 of at most {found.limit_ms:g} ms", columns, rows, numbers_from=0)
    if found.rate is None:
        print("no rate was sustained; try a lower --rate or a higher --limit-ms")
    else:
        print(f"highest sustained rate: {found.rate:.1f} requests/s")


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items())) or "none"
