"""The command line: a face for people and scripts, one module per command.

It is an extra. Nothing here imports click or rich before `main` has seen that they are installed.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run `postroom` with the arguments of this process, and end it with the command's exit code."""
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:  # before the command began
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _run(arguments: list[str]) -> int:
    try:
        import click  # noqa: F401 - only to see that it is there
        import rich  # noqa: F401 - only to see that it is there
    except ImportError:
        sys.stderr.write("The command line needs click and rich: run pip install 'postroom[cli]'.\n")
        return 1
    from postroom.cli.run import run

    return run(arguments)
