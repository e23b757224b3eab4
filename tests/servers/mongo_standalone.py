"""MongoDB as it comes: a standalone server, which has no transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.mongo import installed_program, wheel_program
from tests.servers.mongod import Mongod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Found, Place, Source


def wheel(place: Place) -> Found:
    return Mongod(place, wheel_program(), standalone=True).start()


def installed(place: Place) -> Found:
    return Mongod(place, installed_program(), standalone=True).start()


SOURCES: Mapping[str, Source] = {"wheel": wheel, "installed": installed}
