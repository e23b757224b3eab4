"""```python project=alembic, sh project=alembic: the project of docs/how-to/use-with-sqlalchemy.md, with Alembic, on SQLite.

`alembic init` makes it; what the page says about `env.py` takes the place of its line on metadata. The migration that the page
shows is compared with the one that autogenerate writes, and is also run by itself.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.docs.blocks import all_of
from tests.docs.projects import MODELS, files_of, lay_out, swapped
from tests.docs.running import SHOP
from tests.unit.integrations.sqla.projects import Project

ENV, TABLES, QUERY = "migrations/env.py", "shop/tables.py", "waiting.py"
MIGRATION = "migrations/versions/add_postroom.py"
FILES = files_of("file of alembic")


def a_project(folder: Path, right: str = "", wrong: str = "") -> Project:
    """As the page has it, without the migration; if it is told so, with something wrong in it."""
    project = Project(folder, SHOP, "sqlite")
    project.alembic("init", "migrations")
    files = {name: code.replace(right, wrong) for name, code in FILES.items()}
    lay_out(
        {
            "shop/models.py": MODELS,
            TABLES: swapped(files[TABLES], {'"postgresql"': '"sqlite"'}),
            QUERY: swapped(files[QUERY], {"postgresql+psycopg://app@db/shop": SHOP}),
            ENV: swapped((folder / ENV).read_text(), {"target_metadata = None\n": files[ENV]}),
            "alembic.ini": swapped((folder / "alembic.ini").read_text(), {"driver://user:pass@localhost/dbname": SHOP}),
        },
        folder,
    )
    return project


def migrated(folder: Path, right: str = "", wrong: str = "") -> Project:
    """After what the page says to type."""
    project = a_project(folder, right, wrong)
    for block in all_of("commands of alembic"):
        for line in block.code.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "alembic"
            project.alembic(*arguments)
    return project


def test_the_tables_come_by_the_migration_and_can_be_queried(tmp_path: Path) -> None:
    project = migrated(tmp_path)
    assert set(FILES) == {ENV, TABLES, QUERY, MIGRATION}
    written = re.findall(r"\S.*", project.migration("add_postroom"))
    shown = re.findall(r"^ .*|^from.*", FILES[MIGRATION], re.MULTILINE)
    assert {line.strip() for line in shown} <= set(written)
    project.postroom("put", "order.paid", "--store", SHOP, "--key", "order-7")
    assert project.run(QUERY) == "order.paid order-7\n"
    assert "No new upgrade operations" in project.alembic("check")


def test_the_migration_that_is_shown_makes_the_tables_and_takes_them_away(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    lay_out({MIGRATION: f'revision = "1"\ndown_revision = None\n{FILES[MIGRATION]}'}, tmp_path)
    project.alembic("upgrade", "head")
    assert "Nothing to do" in project.postroom("init", "--store", SHOP)
    project.alembic("downgrade", "base")
    assert "Created the tables" in project.postroom("init", "--store", SHOP)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("Base.metadata, ", "Base.metdata, "), ("import postroom.integrations.alembic ", "import postroom.integrations ")],
)
def test_a_name_that_nobody_has_or_an_import_that_is_missing_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    assert any(right in code for code in FILES.values())
    with pytest.raises(AssertionError):
        assert "postroom.upgrade(" in migrated(tmp_path, right, wrong).migration("add_postroom")
