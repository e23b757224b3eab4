from __future__ import annotations

import re
import shlex

import click
import pytest
from tests.unit.cli.running import Desk

from postroom.cli.app import COMMANDS, load


def test_postroom_alone_teaches(empty: Desk) -> None:
    shown = empty()
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == empty("--help").out
    listed = re.findall(r"^  ([a-z]+)  ", shown.out.partition("Commands:")[2], re.MULTILINE)
    assert listed == list(COMMANDS)
    known = ("init", "put", "status", "list")
    assert [name for name in listed if name in known] == [*known]


def test_the_session_in_the_help_works_as_it_is_printed(empty: Desk) -> None:
    commands = re.findall(r"\$ postroom (.*)", empty().out)
    assert len(commands) == 4
    for command in commands:
        assert empty(*shlex.split(command)).code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_examples_and_each_option_has_help(empty: Desk, name: str) -> None:
    shown = empty(name, "--help", COLUMNS="80")
    assert shown.code == 0
    assert "Examples:" in shown.out
    assert re.search(rf"postroom {name}\b", shown.out.partition("Examples:")[2])
    assert max(map(len, shown.out.splitlines())) <= 80
    for parameter in load(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.name
            assert parameter.opts[0] in shown.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_name_options_that_there_are(name: str) -> None:
    command = load(name)
    for example in re.findall(rf"postroom {name}\b(.*)", command.help or ""):
        meant = command.commands[example.split()[0]] if isinstance(command, click.Group) else command
        known = {spelling for parameter in meant.params for spelling in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", example)) <= known
