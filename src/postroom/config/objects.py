"""Things of yours that a setting names: `module:object`."""

from __future__ import annotations

from importlib import import_module
from traceback import extract_tb
from typing import Any

from postroom import containment
from postroom.containment import Escaped, contained
from postroom.errors import ConfigError
from postroom.text import describe


def load(name: str, *, shown: str, usage: str) -> Any:
    """The object that *name* names, or ConfigError about *shown*; *usage* says how it is to be written."""
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ConfigError(f"{shown} names nothing: write {usage}.")
    found = _imported(module, shown)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as exc:
            raise ConfigError(f"{shown} cannot be loaded: {exc}; check the name behind the colon.") from exc
    return found


def _imported(module: str, shown: str) -> Any:
    try:
        with contained():
            return import_module(module)
    except Exception as exc:
        if isinstance(exc, ModuleNotFoundError) and exc.name and f"{module}.".startswith(f"{exc.name}."):
            raise ConfigError(f"{shown} cannot be loaded: {exc}; check the name and PYTHONPATH.") from exc
        raised = (exc.__cause__ or exc) if isinstance(exc, Escaped) else exc
        raise ConfigError(f"{shown} cannot be loaded: {describe(raised)}; fix that module{_place(raised)}.") from exc


def _place(error: BaseException) -> str:
    """Where the user's own code failed: the file and the line of a syntax error, else the last frame outside the import."""
    if isinstance(error, SyntaxError) and error.filename:
        return f", at {error.filename} line {error.lineno}"
    frames = [frame for frame in extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    theirs = [frame for frame in frames if frame.filename not in (__file__, containment.__file__)]
    return f", at {theirs[-1].filename} line {theirs[-1].lineno}" if theirs else ""
