"""```python project=django, sh project=django: the project of docs/how-to/use-with-django.md, on SQLite.

Orders are placed by its view, and what is typed there is typed: a relay carries them to a consumer, which packs parcels. The
broker between the two is a webhook.
"""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.docs.blocks import all_of
from tests.docs.django_project import a_project, lines
from tests.docs.projects import files_of, swapped
from tests.docs.running import PATIENCE
from tests.servers.ports import free_port, listens
from tests.unit.integrations.django.projects import Project

from postroom.testing.waiting import until

FILES, TYPED = files_of("file of django"), all_of("commands of django")
MAIL = ("postroom", "relay", "--to", "local://shop.mail:send", "--drain")
PLACE = """
from django.test import Client
print(Client(headers={"host": "localhost"}).post("/orders/", {"item": "lamp"}).status_code)
"""
GONE = "order.placed 1 HANDLER_ERROR: DoesNotExist: Order matching query does not exist.\n"
LOSE = "from shop.models import Order\nOrder.objects.all().delete()"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def project(tmp_path: Path, port: int) -> Project:
    """Migrated."""
    made = a_project(FILES, broker(port), tmp_path)
    migrate, *_ = lines(TYPED, broker(port))
    made.done(*migrate)
    return made


def broker(port: int) -> str:
    return f"http://127.0.0.1:{port}/orders"


def test_the_readers_test_passes_and_a_mail_goes_by_a_function_with_the_orm(project: Project) -> None:
    tested = project.manage("test")
    assert tested.returncode == 0, tested.stderr
    assert "Ran 1 test" in tested.stderr
    assert project.python(PLACE) == "201\n"
    assert "mail: lamp\n" in project.done(*MAIL)


def test_what_is_dead_is_listed_and_requeued_and_every_order_becomes_one_parcel(project: Project, port: int) -> None:
    _, relay, *others, consume = lines(TYPED, broker(port))
    project.done("migrate", "postroom", "--database", "other", "-v0")
    assert project.python(PLACE + LOSE) == "201\n"
    assert project.manage(*MAIL).returncode == 3, "one try is all that the file has of CONFIG"
    said = project.python(FILES["dead.py"])
    assert said.startswith(GONE)
    assert said.removeprefix(GONE).startswith("  File "), "and below it the end of the traceback"

    ended = {str(done.args): done for done in project.several(*map(" ".join, others))}
    assert "1 message waits" in ended.pop("postroom doctor").stdout, "with a finding it ends with 1"
    assert [done for done in ended.values() if done.returncode] == []
    assert "order.placed" in ended["postroom list --status dead"].stdout
    with running(project, consume), running(project, relay):
        parcels(project, 1)
    project.python(PLACE)
    with running(project, consume):
        until(lambda: listens(port))
        assert "1 published" in project.done("postroom", "relay", "--drain"), "to where TO says"
        parcels(project, 2)


def parcels(project: Project, number: int) -> None:
    def packed() -> bool:
        with closing(sqlite3.connect(project.folder / "db.sqlite3")) as shop:
            return shop.execute("SELECT item FROM shop_parcel").fetchall() == [("lamp",)] * number

    until(packed)


@contextmanager
def running(project: Project, words: Sequence[str]) -> Iterator[None]:
    """A command that goes on until it is ended."""
    argv = [sys.executable, "manage.py", *words]
    with subprocess.Popen(argv, cwd=project.folder, env=project.environment()) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            ended = process.wait(timeout=PATIENCE)
        assert ended == 0


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("shop/views.py", "key=str(order.pk)", "key=str(order.id_)"),
        ("shop/tests.py", "message.payload", "message.paylod"),
        ("mysite/settings.py", '"postroom.integrations.django"', '"postroom.integrations.djnago"'),
    ],
)
def test_a_name_that_nobody_has_is_found(file: str, right: str, wrong: str, tmp_path: Path) -> None:
    files = FILES | {file: swapped(FILES[file], {right: wrong})}
    tested = a_project(files, broker(1), tmp_path).manage("test")
    assert tested.returncode == 1
    assert re.search(r"(?:attribute|module named).*(?:id_|paylod|djnago)", tested.stderr), tested.stderr


def test_a_name_that_nobody_has_is_found_in_a_function_that_takes_messages(project: Project) -> None:
    (project.folder / "shop/mail.py").write_text(swapped(FILES["shop/mail.py"], {"pk=message.key": "pk=mesage.key"}))
    project.done("postroom", "put", "order.placed", "--key", "1")
    assert project.manage(*MAIL).returncode == 3
    assert "NameError" in project.done("postroom", "list", "--json")
