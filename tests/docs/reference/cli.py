"""cli.md: every command, as click knows it."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import click
from tests.docs.reference.made import page, table

from postroom.cli.app import app, load
from postroom.cli.options import store_options

HELP = {"help", "version"}


def page_of_commands() -> str:
    """All of them, in the order one uses them; what every command takes is said once."""
    shared: set[str | None] = {each.name for each in _options(click.command()(store_options(lambda: None)))}
    commands = [part for path, command in walk("postroom", app) for part in of_command(path, command, shared)]
    common = _options(load("put"))
    return page(
        "The command line",
        *commands,
        "## What every command takes",
        table([["option", "meaning"], *_rows([each for each in common if each.name in shared])]),
    )


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, below in _below(command):
            yield from walk(f"{path} {name}", below)


def of_command(path: str, command: click.Command, shared: set[str | None]) -> Iterator[str]:
    """Its usage, what it does, examples, and its own options."""
    context = click.Context(command, info_name=path)
    yield f"## {path}" if path != "postroom" else "## The whole"
    yield f"`{' '.join([path, *command.collect_usage_pieces(context)])}`"
    yield from _told(command.help or "")
    if isinstance(command, click.Group):
        rows = [[f"[`{path} {n}`](#{_anchor(f'{path} {n}')})", c.get_short_help_str(200)] for n, c in _below(command)]
        yield table([["command", "does"], *rows])
    if rows := _rows([each for each in _options(command) if each.name not in shared | HELP]):
        yield table([["option", "meaning"], *rows])


def _below(command: click.Group) -> list[tuple[str, click.Command]]:
    context = click.Context(command)
    found = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return [(name, below) for name, below in found if below is not None]


def _anchor(title: str) -> str:
    return title.replace(" ", "-")


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def _rows(options: list[click.Option]) -> list[list[str]]:
    return [[f"`{name}`", meaning] for each in options for name, meaning in [_record(each)]]


def _record(option: click.Option) -> tuple[str, str]:
    name, meaning = option.get_help_record(click.Context(app)) or ("", "")
    return name, re.sub(r"\s+", " ", meaning)


def _told(text: str) -> Iterator[str]:
    """The help's paragraphs; those that click leaves as they are become blocks."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if not part.startswith("\b\n"):
            yield re.sub(r"(?<![`\w-])(--[a-z-]+|[A-Z]+_[A-Z_]+)", r"`\1`", " ".join(part.split()))
            continue
        title, *lines = part.removeprefix("\b\n").splitlines()
        indented = [line for line in lines if line.startswith(" ")]
        code = textwrap.dedent("\n".join(indented)).replace("$ ", "")
        language = "json" if code.startswith("{") else "sh help"
        yield title
        yield f"```{language}\n{code}\n```"
        yield " ".join(line for line in lines if line not in indented)
