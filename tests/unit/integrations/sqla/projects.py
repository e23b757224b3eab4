"""A project with SQLAlchemy and Alembic in a folder: what is typed there is run, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MODELS = """
import sqlalchemy as sa
from postroom import TableNames
from postroom.integrations.sqlalchemy import add_tables

metadata = sa.MetaData()
sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
"""
FIRST = """
from alembic import op
from postroom.integrations import alembic as postroom

revision = "1"
down_revision = None

"""

TWO_STEPS = f"""
import sys
sys.path.append({str(Path(__file__).parents[4])!r})
import pytest
from tests.unit.stores.two_steps import in_two_steps
in_two_steps(pytest.MonkeyPatch())
"""


@dataclass
class Project:
    """A folder with models and `alembic init migrations`."""

    folder: Path
    url: str
    dialect: str

    def begin(self, more: str = "") -> None:
        self.alembic("init", "migrations")
        (self.folder / "models.py").write_text(MODELS + f'add_tables(metadata, "{self.dialect}"{more})\n')
        env, ini = self.folder / "migrations/env.py", self.folder / "alembic.ini"
        imports = "import postroom.integrations.alembic\nfrom models import metadata as target_metadata"
        text = env.read_text().replace("target_metadata = None", imports)
        assert imports in text
        schemas = "schema" in more
        options = f"target_metadata=target_metadata, compare_server_default=True, include_schemas={schemas}"
        env.write_text(text.replace("target_metadata=target_metadata", options))
        ini.write_text(ini.read_text().replace("driver://user:pass@localhost/dbname", self.url))

    def knows_two_steps(self) -> None:
        """From now on, Alembic runs here as if our tables had come in two migrations."""
        env = self.folder / "migrations/env.py"
        env.write_text(TWO_STEPS + env.read_text())

    def alembic(self, *arguments: str, code: int = 0) -> str:
        return self.run("-m", "alembic", *arguments, code=code)

    def postroom(self, *arguments: str) -> str:
        return self.run("-m", "postroom", *arguments)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{self.folder}"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def migration(self, message: str) -> str:
        """The text of the migration with this message."""
        (file,) = (self.folder / "migrations/versions").glob(f"*_{message}.py")
        return file.read_text()

    def write(self, upgrade: str, downgrade: str = "pass") -> None:
        """A first migration, by hand."""
        text = f"{FIRST}def upgrade():\n    {upgrade}\n\n\ndef downgrade():\n    {downgrade}\n"
        (self.folder / "migrations/versions/1_ours.py").write_text(text)
