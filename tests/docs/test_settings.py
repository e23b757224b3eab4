"""```toml: a `postroom.toml`. It is loaded, sets something, and its routes can be made."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import Block, each
from tests.docs.running import run

from postroom import Settings
from postroom.config.load import load_settings

ROUTES = """
from pathlib import Path
from postroom.relay import routes_from
from postroom.config.load import load_settings
assert routes_from(load_settings(env={}, toml=Path("postroom.toml")))
"""


@each("settings")
def test_a_toml_block_is_a_file_of_settings(block: Block, tmp_path: Path) -> None:
    for name in re.findall(r'_file = "([^"]+)"', block.code):
        (tmp_path / name).write_text("whsec_bmV3")
        (tmp_path / name).chmod(0o600)
    (tmp_path / "postroom.toml").write_text(block.code)
    settings = load_settings(env={}, toml=tmp_path / "postroom.toml")
    assert settings != Settings()
    if settings.to or settings.routes:
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "mail.py").write_text("def send(message): ...\n")
        run(ROUTES, tmp_path)
