"""Pages whose blocks are one project: ```python project=django file=shop/views.py, laid out in a folder as a reader would.

Two blocks with the same `file=` are one file, in the order of the page. What the page takes for granted, such as the reader's
models, the test of that project adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.docs.blocks import all_of

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[int]
"""
"""`shop/models.py` of a reader with SQLAlchemy."""


def files_of(*kinds: str) -> dict[str, str]:
    """The files of a project by their names."""
    found: dict[str, str] = {}
    for block in all_of(*kinds):
        assert block.options.get("file"), f"{block} does not say with file= where it is saved"
        name = block.options["file"]
        found[name] = f"{found[name]}\n\n{block.code}" if name in found else block.code
    assert found, f"no page has {kinds}"
    return found


def lay_out(files: Mapping[str, str], folder: Path) -> None:
    """Saves them."""
    for name, code in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code)


def swapped(code: str, places: Mapping[str, str]) -> str:
    """The code with the databases and brokers of this machine for those that are written there."""
    for written, real in places.items():
        assert written in code, f"{written} is not there:\n{code}"
        code = code.replace(written, real)
    return code
