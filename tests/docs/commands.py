"""Commands that are not run here, but could be typed: what `postroom`, `make` and `pip install` are given is really there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from tests.docs.blocks import ROOT

from postroom.cli.app import app
from postroom.config.load import SETTINGS
from postroom.config.parse import URLS

OTHERS = {
    "alembic", "cat", "cd", "cp", "curl", "docker", "echo", "generate", "git", "helm", "jq", "kill", "kubectl",
    "less", "ls", "mkdir", "mongosh", "mysql", "ps", "psql", "pytest", "sleep", "source", "sqlite3", "sudo", "systemctl",
    "tail", "uvicorn", "watch",
}  # fmt: skip
"""Programs of others: what they are given is theirs to judge."""
VARIABLES = {
    *(setting.variable for setting in SETTINGS.values()),
    *(f"{SETTINGS[name].variable}_FILE" for name in URLS),
    "POSTROOM_DEBUG", "POSTROOM_REQUIRE_SERVERS", "POSTROOM_TEST_MYSQL",
}  # fmt: skip


class NoSuchThing(AssertionError):
    """A command that nobody could type with success."""


def check_commands(code: str, page: Path) -> None:
    """Raises NoSuchThing for a command that would be refused."""
    for words in commands(code):
        while words and "=" in words[0] and not words[0].startswith("-"):
            _variable(words.pop(0))
        if words:
            check_command(words, page)


def commands(code: str) -> Iterator[list[str]]:
    """The commands in a script, each by its words."""
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("<>&") and set(word) & set("<>"):
                next(lexer)  # where to, or where from
            elif set(word) <= set("|&;"):
                yield words
                words = []
            else:
                words.append(word)
        yield words


def check_command(words: Sequence[str], page: Path) -> None:
    """The one of `CHECKS`, by the program's name."""
    program, *arguments = words
    if program not in CHECKS and program not in OTHERS:
        raise NoSuchThing(f"{program}: nothing is known of this command; see tests/docs/commands.py.")
    CHECKS.get(program, _anything)(arguments, page)


def _anything(arguments: Sequence[str], page: Path) -> None:
    """Is for others to judge."""


def _postroom(arguments: Sequence[str], page: Path) -> None:
    """As the command line reads it: an unknown option is refused, and a value that is none."""
    group: click.Command = app
    context: click.Context | None = None
    rest = [word for word in arguments if word != "…"]
    try:
        while isinstance(group, click.Group) and rest and rest[0] not in {"--help", "-h", "--version"}:
            name, found, rest = group.resolve_command(click.Context(group, context), list(rest))
            group = found or group
            context = click.Context(group, context, info_name=name)
        group.make_context("postroom", list(rest), parent=context and context.parent)
    except click.exceptions.Exit:
        pass  # --help
    except click.ClickException as exc:
        raise NoSuchThing(f"postroom {' '.join(arguments)}: {exc.format_message()}") from exc


def _make(arguments: Sequence[str], page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in arguments:
        if "=" not in target and target not in targets:
            raise NoSuchThing(f"make {target}: there is no such target.")


def _pip(arguments: Sequence[str], page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"(?:postroom|\.)\[([\w,-]+)\]", " ".join(arguments)):
        if unknown := set(names.split(",")) - set(extras):
            raise NoSuchThing(f"pip install 'postroom[{names}]': there is no extra {', '.join(unknown)}.")


def _python(arguments: Sequence[str], page: Path) -> None:
    """A module that is there, or a file: beside the page, from the root, or one that the page shows by its name."""
    match arguments:
        case ["-m", "pip", *rest]:
            _pip(rest, page)
        case ["-m", "postroom", *rest]:
            _postroom(rest, page)
        case ["-m", module, *_]:
            if module != "venv" and not importlib.util.find_spec(module.partition(".")[0]):
                raise NoSuchThing(f"python -m {module}: there is no such module.")
        case [file, *_] if file.endswith(".py"):
            there = (page.parent / file).exists() or (ROOT / file).exists()
            if not there and f"file={file}" not in page.read_text() and file != "manage.py":
                raise NoSuchThing(f"python {file}: there is no such file beside the page.")


def _export(arguments: Sequence[str], page: Path) -> None:
    for each in arguments:
        _variable(each)


def _variable(assignment: str) -> None:
    name = assignment.partition("=")[0]
    if name.startswith("POSTROOM_") and name not in VARIABLES:
        raise NoSuchThing(f"{name}: there is no setting of this name.")


CHECKS: dict[str, Callable[[Sequence[str], Path], None]] = {
    "export": _export, "make": _make, "pip": _pip, "postroom": _postroom, "python": _python, "python3": _python,
}  # fmt: skip
