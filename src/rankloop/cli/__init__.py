"""The command line: results on standard output, progress and notes on standard error, exit code 2 for wrong input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Matrices are small, so BLAS threads would only slow each other down. Must be set before numpy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from cyclopts import App, CycloptsError, Parameter

from rankloop import __version__
from rankloop.core.errors import RankloopError


def build() -> App:
    """The application with all commands."""
    from rankloop.cli import (
        backup,
        bench,
        catalog,
        clicks,
        data,
        export,
        import_,
        inspect,
        interleave,
        kernels,
        keys,
        lab,
        learners,
        plan,
        replay,
        reproduce,
        service,
        warm_start,
    )

    app = App(
        name="rankloop",
        version=__version__,
        suppress_keyboard_interrupt=False,  # main() handles it
        default_parameter=Parameter(negative=()),  # `--json` needs no `--no-json`
        help=(
            "A ranking that learns from every click.\n\n"
            "`rankloop serve --example` starts the service: it ranks over HTTP and learns from clicks. If "
            "something does not work, `rankloop doctor` reports what to do.\n\n"
            "To compare learners, start with `rankloop learners`, then `rankloop compare pairrank pdgd greedy random`, "
            "which runs them with simulated users. No data is needed: `synthetic:mslr` is generated."
        ),
    )
    for module in (
        *(service, keys, backup, kernels, catalog, warm_start, import_, bench, plan),
        *(replay, inspect, export),
        *(learners, lab, reproduce, interleave, clicks, data),
    ):
        module.add_to(app)
    app.register_install_completion_command(
        help="Install completion of commands and options for your shell (bash, zsh, fish)."
    )
    return app


RESUMABLE = (["sweep"], ["reproduce"], ["warm-start"], ["export-log"])  # continue when they are called again
RESUMABLE_WITH_OUT = (["compare"], ["simulate"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `rankloop` command."""
    try:
        build()(arguments, exit_on_error=False, print_error=False)
    except (CycloptsError, RankloopError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        words = list(sys.argv[1:] if arguments is None else arguments)
        resumable = words[:1] in RESUMABLE or (words[:1] in RESUMABLE_WITH_OUT and "--out" in words)
        more = "; finished work is kept, and the same command continues" if resumable else ""
        print(f"rankloop: stopped{more}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output (head, a pager) went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}; check the path and its permissions")


def fail(message: str) -> None:
    """Print the error in one line and exit with 2."""
    print(f"rankloop: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
