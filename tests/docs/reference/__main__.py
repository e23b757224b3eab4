"""Writes the pages."""

from __future__ import annotations

from tests.docs.reference import FOLDER, pages

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in pages().items():
        file.write_text(text)
