"""`rankloop search`."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path

from cyclopts import App

from rankloop.cli import _out
from rankloop.cli.demo import end_alike
from rankloop.core.errors import InvalidParameter

TEXT = """
rankloop search: a search engine over your own Python that learns from your clicks.

  {page}

Search, open what you were looking for, close it, and see it move. On the right is the engine's own order, which never
learns; below the box one sentence says which of the two clicks prefer.

  {service}   what the ranker has learned, and why (the service's status page)
  {folder}   index and clicks; delete it to begin anew

{end}
"""


def add_to(app: App) -> None:
    """Register the command."""
    app.command(search)


def search(
    *,
    path: list[Path] | None = None,
    port: int | None = None,
    reindex: bool = False,
    simulate: bool = False,
    rate: float = 5.0,
    minutes: float | None = None,
    visits: int | None = None,
    seed: int = 0,
    no_browser: bool = False,
) -> None:
    """Search the Python on this machine, and teach the search by clicking: the worked example of docs/search.md.

    Reads the source of the standard library and of what is installed (nothing is imported or downloaded), and opens a
    page with one box. The first start reads for a minute or so, and finds what it has read meanwhile; later ones only
    read what has changed. Index and clicks stay in your cache folder. Ctrl-C ends it, and nothing learned is lost.

    Example: rankloop search

    Example: rankloop search --path src --path ../other/src

    Example: rankloop search --simulate --minutes 10 --no-browser

    Parameters
    ----------
    path
        Folders to search instead of what this Python has installed; each set of folders has an index of its own.
    port
        Port of 127.0.0.1; 0 takes a free one. If not given: 8080, or a free one if that is taken.
    reindex
        Read everything again. What was learned stays.
    simulate
        Let simulated people search, who like what is documented, public and used by others. They teach a ranker of
        their own, which begins anew at each start, and never yours.
    rate
        Simulated people a second.
    minutes
        End by itself after so many; without it, Ctrl-C ends it.
    visits
        End after so many simulated visits.
    seed
        Of the simulated people: the same seed brings the same people with the same tastes and queries.
    no_browser
        Only print the address.
    """
    try:
        from rankloop.search.index import folders
        from rankloop.search.run import Site
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"search needs {error.name}; pip install 'rankloop[service]'") from None
    if visits is not None and not simulate:
        raise InvalidParameter(f"visits is {visits}, but nobody is simulated; add --simulate")

    def say(text: str) -> None:
        _out.people.print(text, highlight=False, markup=False, soft_wrap=True)

    roots = [one.resolve() for one in path] if path else folders()
    folder = _folder(path and roots)
    with _out.progress_bars() as bars:
        bar = None

        def told(done: int, of: int) -> None:
            nonlocal bar
            if bar is None:
                bar = bars.add_task("reading source", total=of)
            bars.update(bar, completed=done, visible=done < of)
            if done == of:
                say(f"read {of:,} files")

        made = Site(
            folder,
            roots,
            port=port,
            minutes=minutes,
            visits=visits,
            rate=rate if simulate else 0.0,
            seed=seed,
            tell=say,
            told=told,
        )
        if reindex:
            for old in folder.glob("index.db*"):
                old.unlink()

        def opened(page: str, service: str) -> None:
            end = "Ctrl-C ends it." if minutes is None else f"It ends after {minutes:g} minutes, or with Ctrl-C."
            say(TEXT.format(page=page, service=service, folder=folder, end=end))
            if not no_browser:
                webbrowser.open(page)

        end_alike()
        _out.say_when_compiling()
        with suppress(KeyboardInterrupt):  # the server has drained, and raises it again for us
            made.run(opened)
    if made.failures:
        sys.exit(1)
    say("ended; what was learned is kept")


def _folder(roots: list[Path] | None) -> Path:
    """Where index and clicks are kept: one place for what is installed, one for each other set of folders."""
    from rankloop.lab.datasets.cache import chosen_root

    name = "search" if not roots else f"search-{hashlib.sha256(repr(roots).encode()).hexdigest()[:12]}"
    root = chosen_root()
    return (root or Path(tempfile.gettempdir()) / "rankloop") / name
