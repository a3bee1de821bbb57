"""`rankloop` and `python -m rankloop`: the command line, or which extra it needs."""

from __future__ import annotations

import sys

HINT = """rankloop: the library is installed, the command line is not; it comes with an extra:

    pip install 'rankloop[service]'   # serve rankings over HTTP
    pip install 'rankloop[lab]'       # compare learners on simulated users
"""


def main() -> None:
    """Run the command line."""
    try:
        from rankloop.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("cyclopts", "rich"):
            raise
        sys.stderr.write(HINT)
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
