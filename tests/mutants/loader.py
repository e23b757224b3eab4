"""The relay with some of its lines changed: loaded beside the honest one, which stays as it is."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import postroom.relay

FOLDER = Path(postroom.relay.__file__).parent
PACKAGE = "postroom.relay"


class Change(NamedTuple):
    """In this file of the relay, this text instead of that."""

    file: str
    right: str
    wrong: str

    def of(self, source: str) -> str:
        assert self.right in source, f"{self.file} has no {self.right!r} any more: which line keeps the rule now?"
        return source.replace(self.right, self.wrong)


class _Loader(importlib.machinery.SourceFileLoader):
    changes: Sequence[Change] = ()

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        for change in self.changes:
            if change.file == Path(self.path).name:
                source = change.of(source)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(PACKAGE):
            return None
        is_package = fullname == PACKAGE
        file = FOLDER / ("__init__.py" if is_package else f"{fullname.rpartition('.')[2]}.py")
        loader = _Loader(fullname, str(file))
        loader.changes = self._changes
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=[str(FOLDER)] if is_package else None
        )


@contextmanager
def changed(changes: Sequence[Change]) -> Iterator[ModuleType]:
    """`postroom.relay` as it would be with these changes."""
    honest = {name: module for name, module in sys.modules.items() if name.startswith(PACKAGE)}
    finder = _Finder(changes)
    for name in honest:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(honest)
        postroom.relay = honest[PACKAGE]  # the import above put the changed one there
