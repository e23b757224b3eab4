"""`manage.py postroom …`: the whole command line, on a database of the project's settings."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from postroom.errors import ConfigError


class Command(BaseCommand):
    """Hands its arguments over to `postroom`, and ends with its exit code."""

    help = (
        "The command line of Postroom: status, list, explain, relay, consume, requeue, discard, doctor and more, on the "
        "database of your settings. `manage.py postroom status --help` tells of one of them."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_database(parser)
        parser.add_argument(
            "arguments",
            nargs=argparse.REMAINDER,
            metavar="command …",
            help="As `postroom` takes them; no --store is needed.",
        )

    def handle(self, *_: Any, arguments: list[str], database: str, **__: Any) -> None:
        """Run it. `--database` may also stand behind the command, as people write it."""
        behind = argparse.ArgumentParser(prog="manage.py postroom", add_help=False, allow_abbrev=False)
        _add_database(behind, default=database)
        # Django has read these two before it came here.
        behind.add_argument("--settings")
        behind.add_argument("--pythonpath")
        options, rest = behind.parse_known_args(arguments)
        try:
            code = _run(options.database, rest)
        except ConfigError as exc:
            raise CommandError(str(exc), returncode=2) from exc
        if code:
            sys.exit(code)


def _add_database(parser: argparse.ArgumentParser, default: str = DEFAULT_DB_ALIAS) -> None:
    parser.add_argument("--database", default=default, metavar="ALIAS", help="Which of DATABASES. Default: default.")


def _run(alias: str, arguments: list[str]) -> int:
    try:
        import click  # noqa: F401 - only to see that it is there
        import rich  # noqa: F401 - the same
    except ImportError as exc:
        raise CommandError("The command line needs click and rich: run pip install 'postroom[cli]'.") from exc
    from postroom.cli.django import run_for

    return run_for(alias, arguments)
