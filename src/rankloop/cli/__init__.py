"""The command line: `rankloop --help` tells.

Only here does rankloop print and exit. What programs read goes to standard output, what people watch (progress, notes)
to standard error. A wrong call or bad input is one line with the remedy and exit code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# The matrices here are small: BLAS threads would only fight each other, and one thread gives the same bits everywhere.
# Must be set before numpy is imported, which is why it stands above the commands.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from cyclopts import App, CycloptsError, Parameter

from rankloop import __version__
from rankloop.core.errors import RankloopError


def build() -> App:
    """The whole command, ready to call."""
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
        suppress_keyboard_interrupt=False,  # main() says what is kept
        default_parameter=Parameter(negative=()),  # `--json` needs no `--no-json`
        help=(
            "A ranking that learns from every click.\n\n"
            "`rankloop serve --example` starts the service: it ranks over HTTP and learns from clicks. If "
            "something does not work, `rankloop doctor` reports what to do.\n\n"
            "To compare learners, start with `rankloop learners`, then `rankloop compare pairrank pdgd greedy random`: "
            "it lets them serve simulated users and prints who did best. No data is needed; `synthetic:mslr` and its "
            "kin are generated."
        ),
    )
    for module in (
        *(service, keys, backup, kernels, catalog, warm_start, import_, bench, plan),
        *(replay, inspect, export),
        *(learners, lab, reproduce, interleave, clicks, data),
    ):
        module.add_to(app)
    app.register_install_completion_command(
        help="Let the shell complete commands and options: writes a file for your shell (bash, zsh, fish), "
        "and a line into its start-up file where it needs one."
    )
    return app


RESUMED = (["sweep"], ["reproduce"], ["warm"], ["export-log"])  # commands that, broken off, go on where they were
RESUMED_WITH_OUT = (["compare"], ["simulate"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `rankloop` command."""
    try:
        build()(arguments, exit_on_error=False, print_error=False)
    except (CycloptsError, RankloopError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        said = list(sys.argv[1:] if arguments is None else arguments)
        resumes = said[:1] in RESUMED or (said[:1] in RESUMED_WITH_OUT and "--out" in said)
        more = "; what was finished is kept, and the same command goes on" if resumes else ""
        print(f"rankloop: stopped{more}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output (head, a pager) went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}; check the path and its rights")


def fail(message: str) -> None:
    """Say what is wrong in one line and exit with 2."""
    print(f"rankloop: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
