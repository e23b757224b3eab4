"""Pages that are made from the code: `python -m tests.docs.reference` writes them, and a test compares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.docs.reference import api, cli, declared, errors, events, requirements, settings, tables

FOLDER = Path(__file__).parents[3] / "docs/reference"
PAGES: dict[str, Callable[[], str]] = {
    "api": api.page_of_names,
    "cli": cli.page_of_commands,
    "settings": settings.page_of_settings,
    "errors": errors.page_of_errors,
    "events": events.page_of_events,
    "tables": tables.page_of_tables,
    "stores": declared.stores,
    "transports": declared.transports,
    "requirements": requirements.page_of_requirements,
}


def pages() -> dict[Path, str]:
    """Each page that is made, by its file."""
    return {FOLDER / f"{name}.md": make() for name, make in PAGES.items()}
