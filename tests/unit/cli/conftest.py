from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.cli.running import Desk


@pytest.fixture
def empty(tmp_path: Path) -> Desk:
    """The command line in an empty folder."""
    return Desk(tmp_path)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop.db with the tables, made once."""
    desk = Desk(tmp_path_factory.mktemp("made"))
    assert desk("init").code == 0
    return desk.folder / "shop.db"


@pytest.fixture
def desk(empty: Desk, made: Path) -> Desk:
    """The command line beside a shop.db that has the tables."""
    shutil.copy(made, empty.folder)
    return empty
