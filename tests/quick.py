"""`pytest --quick`: the tests that one runs on each save. They start no server, and take less than a minute.

The list below names the places that they are in. A test there that asks for a server is left out, by the fixtures that it
takes and by its parameters. One that asks for a server all the same fails, because in this mode none can be started.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.servers import REGISTRY, guard

PLACES = (
    "api/test_names.py", "conformance/inbox", "conformance/test_local_transport.py", "conformance/test_memory*.py",
    "conformance/test_sqlite.py", "docs/test_doctests.py", "docs/test_links.py", "house",
    "docs/test_markdown.py", "docs/test_pictures.py", "docs/test_plain_english.py", "docs/test_reference.py",
    "docs/test_rules.py", "docs/test_settings.py", "docs/test_signatures.py", "docs/test_sql.py", "model",
    "mutants/test_mutants.py", "test_order.py", "test_quick.py",
    "unit/cli/test_help.py", "unit/cli/test_put.py", "unit/cli/test_status.py", "unit/inbox", "unit/ops",
    "unit/relay", "unit/stores/test_guards.py", "unit/stores/test_hand_written.py", "unit/stores/test_opening.py",
    "unit/stores/test_sql_files.py", "unit/test_[!b]*.py", "unit/testing/test_journal.py", "unit/transports/test_*_url.py",
    "unit/transports/test_*_outcomes.py", "unit/transports/test_http_public_ip.py", "unit/transports/test_inflight.py",
    "unit/transports/test_kafka_offsets.py", "unit/transports/test_nats_receiver.py", "unit/transports/test_null.py",
    "unit/transports/test_ordering.py", "unit/transports/test_publishing.py", "unit/transports/test_redis_receiver.py",
    "unit/transports/test_structured.py",
)  # fmt: skip
"""Where the quick tests are, in this folder. Naming them is half of the speed: nothing else is collected."""

SERVERS = {*REGISTRY, "mysql"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run only tests that start no server, in less than a minute")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the quick places unless others are named, and forbid servers."""
    if not config.getoption("quick"):
        return
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(path) for place in PLACES for path in files(place)]
    guard._launch = _refuse  # type: ignore[assignment]  # it takes anything, and never returns


def files(place: str) -> list[Path]:
    """Return the files and folders that a place of the list means. Raises a usage error when there are none."""
    if found := sorted(Path(__file__).parent.glob(place)):
        return found
    raise pytest.UsageError(f"tests/quick.py names {place}, which does not exist.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that ask for a server."""
    if not config.getoption("quick"):
        return
    left_out = [item for item in items if asks_for_a_server(item)]
    items[:] = [item for item in items if not asks_for_a_server(item)]
    config.hook.pytest_deselected(items=left_out)


def asks_for_a_server(item: pytest.Item) -> bool:
    """Return whether a fixture of the test, or one of its parameters, is named after a server."""
    parameters: Iterable[object] = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = [*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))]
    return any(part in SERVERS for name in names for part in name.split("_"))


def _refuse(*_: object) -> NoReturn:
    raise AssertionError("A test asked for a server. In a quick run none is started: see tests/quick.py.")
