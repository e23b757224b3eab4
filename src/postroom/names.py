"""Things of yours that a setting names: `module:object`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from postroom.errors import ConfigError


def load(name: str, *, shown: str, usage: str) -> Any:
    """The object that *name* names, or ConfigError about *shown*; *usage* says how it is to be written."""
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ConfigError(f"{shown} names nothing: write {usage}.")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as exc:
        raise ConfigError(f"{shown} cannot be loaded: {exc}; check the name and PYTHONPATH.") from exc
    except Exception as exc:
        raise ConfigError(f"{shown} cannot be loaded: {type(exc).__name__}: {exc}; mend that module.") from exc
    return found
