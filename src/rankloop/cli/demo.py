"""`rankloop demo`."""

from __future__ import annotations

import signal
import sys
import webbrowser
from contextlib import suppress

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter

TEXT = """
rankloop demo: a shop with simulated shoppers in front of a real service.

  {url}

The rankers. Each shopper visits all of them:
{rankers}

What to look at:
  0:00  hybrid starts with the shop's baseline ranking: its first rankings are those of production.
  0:30  it has learned what shoppers like: NDCG and clicks are above those of production. See "Weights" and "Latest
        impressions", and in "Details" how far it has moved. Under "Experiments" a comparison by clicks alone starts.
  2:00  tastes change. NDCG falls, it explores again, and recovers in a minute or two.
  then  press "Roll back" beside an old version: NDCG falls at once and is learned again; the rollback can be undone.
        Set hybrid to "shadow", or pause it, and see what users get.

{end} Everything is in a temporary folder and goes with it.
"""
RANKERS = {
    "production": "the shop's own order; never learns",
    "hybrid": "learns a taste for all shelves and what is special about each, tries only what it is unsure of",
    "hybrid-bounded": "the same, but no product moves more than three places from the shop's order",
    "bubblerank": "exchanges neighbours, shelf by shelf: safe and slow, give it five minutes",
    "neural": "a small neural network that tries only what it is unsure of",
}


def add_to(app: App) -> None:
    """Register the command."""
    app.command(demo)


def demo(*, minutes: float | None = None, port: int | None = None, rate: float = 8.0, no_browser: bool = False) -> None:
    """Watch rankings learn: a shop with simulated shoppers, several rankers side by side, and the status page.

    Starts the service on a store in a temporary folder and opens the page in your browser. Within a minute rankings
    have learned; after two, tastes change and are followed. Promote, roll back, pause: everything on the page works.
    Ctrl-C ends it, and nothing is left behind.

    Example: rankloop demo

    Example: rankloop demo --no-browser --minutes 10 --port 0

    Parameters
    ----------
    minutes
        End by itself after so many; without it, Ctrl-C ends it.
    port
        Port of 127.0.0.1; 0 takes a free one. If not given: 8080, or a free one if that is taken.
    rate
        Shoppers a second. Each visits every ranker.
    no_browser
        Only print the address.
    """
    try:
        from rankloop.demo.run import Demo, specs
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"the demo needs {error.name}; pip install 'rankloop[service]'") from None

    def say(text: str) -> None:
        _out.people.print(text, highlight=False, soft_wrap=True)

    def opened(url: str) -> None:
        end = "Ctrl-C ends it." if minutes is None else f"It ends after {minutes:g} minutes, or with Ctrl-C."
        rankers = "\n".join(f"  {name:18}{RANKERS[name]}" for name in specs())
        say(TEXT.format(url=url, rankers=rankers, end=end))
        if not no_browser:
            webbrowser.open(url)

    made = Demo(port, minutes, rate, say)
    end_alike()
    _out.say_when_compiling()
    say("[dim]starting the service …[/dim]")
    with suppress(KeyboardInterrupt):  # the server has drained, and raises it again for us
        made.run(opened)
    if made.failures:
        say(f"{made.failures} calls failed")
        sys.exit(1)
    say("ended; nothing is left behind")


def end_alike() -> None:
    """Let a closed terminal and `kill` end it as Ctrl-C does, so that nothing stays behind then either."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)  # the server has its own while it serves, and raises it again for us
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
