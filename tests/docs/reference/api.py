"""api.md: the public names, with what each promises."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from tests.docs.reference.made import explained, first, page, table

import postroom
from postroom.errors import PostroomError

WIDTH = 96


def page_of_names() -> str:
    """`postroom.__all__`, errors left to their own page."""
    names = {name: getattr(postroom, name) for name in sorted(postroom.__all__)}
    errors = [name for name, thing in names.items() if isinstance(thing, type) and issubclass(thing, PostroomError)]
    parts = [part for name, thing in names.items() if name not in errors for part in of_name(name, thing)]
    listed = ", ".join(f"`{name}`" for name in errors)
    return page("Public names", first(postroom), *parts, "## Errors", f"{listed}: see [errors](errors.md).")


def of_name(name: str, thing: Any) -> Iterator[str]:
    """A function, or a class with its fields and methods."""
    yield f"## {name}"
    if not isinstance(thing, type):
        yield block(signature(f"def {name}", thing))
        yield first(thing)
        return
    if not getattr(thing, "_is_protocol", False):
        made = signature("def __init__", vars(thing)["__init__"], returns=False)
        yield block(f"class {name}:\n{textwrap.indent(made, '    ')}")
    yield first(thing)
    if words := explained(thing):
        yield table([["field", "meaning"], *([f"`{field}`", text] for field, text in words.items())])
    for each, found in _methods(thing).items():
        yield f"### {name}.{each}"
        plain = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
        yield block(("@property\n" if isinstance(found, property) else "") + signature(_kind(plain) + each, plain))
        yield first(plain)


def _methods(thing: type) -> dict[str, Any]:
    """Its own, and those of the contracts that it is put together from."""
    bases = [base for base in thing.__mro__ if base.__module__.startswith("postroom")]
    return {each: found for base in bases for each, found in vars(base).items() if _is_public(each, found)}


def _kind(function: Callable[..., Any]) -> str:
    return "async def " if inspect.iscoroutinefunction(function) else "def "


def _is_public(name: str, found: Any) -> bool:
    return not name.startswith("_") and (
        inspect.isfunction(found) or isinstance(found, property | classmethod | staticmethod)
    )


def block(code: str) -> str:
    """A signature."""
    return f"```py\n{code}\n```"


def signature(before: str, thing: Callable[..., Any], *, returns: bool = True) -> str:
    """How it is called, one argument a line where it is long; it can be parsed."""
    found = inspect.signature(thing)
    arguments = list(_arguments(found))
    answer = f" -> {_named(found.return_annotation)}" if returns and found.return_annotation is not found.empty else ""
    line = f"{before}({', '.join(arguments)}){answer}: ..."
    if len(line) <= WIDTH or not arguments:
        return line
    return f"{before}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){answer}: ..."


def _arguments(found: inspect.Signature) -> Iterator[str]:
    starred = False
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
            starred = True
        starred = starred or each.kind is each.VAR_POSITIONAL
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        kind = "" if each.annotation is each.empty else f": {_named(each.annotation)}"
        yield f"{stars}{each.name}{kind}{_default(each, '=' if not kind else ' = ')}"


def _named(annotation: Any) -> str:
    return (
        annotation.replace("'", '"')
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def _default(each: inspect.Parameter, equals: str) -> str:
    if each.default is each.empty:
        return ""
    plain = isinstance(each.default, bool | int | str | float | tuple | dict | None)
    return equals + (repr(each.default).replace("'", '"') if plain else "...")
