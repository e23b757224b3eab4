"""Java programs from Maven Central: fetched once by Maven, with all that they need, and kept between runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.servers.cache import cached
from tests.servers.model import NotHere

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
PATIENCE = 600
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>postroom</groupId><artifactId>test-servers</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def jars(key: str, *coordinates: str) -> Path:
    """A directory with these artifacts (`group:artifact:version`) and whatever they need to run."""

    def fill(whole: Path) -> None:
        if (maven := shutil.which("mvn")) is None:
            raise NotHere("Maven is not installed.")
        whole.mkdir()
        pom = whole / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(DEPENDENCY.format(*each.split(":")) for each in coordinates)))
        words = ["-B", "-q", "-f", os.fspath(pom), PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={whole}"]
        try:
            done = subprocess.run(
                [maven, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotHere(f"Maven took more than {PATIENCE} s.") from None
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise NotHere(f"Maven failed: {' '.join(said)[:300] or 'it gave no reason'}")

    return cached(key, fill)
