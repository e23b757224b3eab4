"""`postroom consume` of webhooks: who sends must be proven, unless it is said that nobody need prove anything."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.commands import POSTROOM, Popen
from tests.servers.ports import free_port
from tests.unit.cli.inboxes import billing
from tests.unit.cli.running import Desk

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
REMEDY = "--secrets-file), or say that it is unsigned (--unsigned)."


@contextmanager
def receiver(desk: Desk, *options: str, **env: str) -> Iterator[str]:
    """A consumer of webhooks that listens, and where."""
    url = f"http://127.0.0.1:{free_port()}/hooks"
    command = [*POSTROOM, "consume", "--from", url, "--app", "billing:inbox", *options]
    with Popen(
        command, cwd=desk.folder, env=desk.environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("inbox billing: http://"), line or (process.stderr and process.stderr.read())
        try:
            yield url
        finally:
            process.terminate()
            process.communicate(timeout=60)


def posted(url: str) -> int:
    """What an unsigned event is answered."""
    headers = {"ce-id": "018f2c5e-0000-7000-8000-000000000001", "ce-type": "order.paid", "ce-source": "anybody"}
    event = Request(url, b'{"amount": 12}', {**headers, "content-type": "application/json"})
    try:
        with urlopen(event, timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@pytest.fixture
def shop(desk: Desk) -> Desk:
    billing(desk, many=0)
    secrets = desk.folder / "hooks.secrets"
    secrets.write_text(SECRET)
    secrets.chmod(0o600)
    return desk


@pytest.mark.parametrize("how", ["variable", "file", "option"])
def test_an_unsigned_webhook_is_refused_wherever_the_secrets_are_named(shop: Desk, how: str) -> None:
    options, env = {
        "variable": ([], {"POSTROOM_SECRETS_FILE": "hooks.secrets"}),
        "file": ([], {}),
        "option": (["--secrets-file", "hooks.secrets"], {}),
    }[how]
    if how == "file":
        (shop.folder / "postroom.toml").write_text('secrets_file = "hooks.secrets"')
    with receiver(shop, *options, **env) as url:
        assert posted(url) == 401
    assert shop.execute("SELECT amount FROM charges") == []


def test_without_a_secret_it_does_not_start_and_says_both_ways_on(shop: Desk) -> None:
    done = shop("consume", "--from", f"http://127.0.0.1:{free_port()}/hooks", "--app", "billing:inbox")
    done.refuses("anybody could send", REMEDY, code=2)


def test_unsigned_is_a_word_that_must_be_said(shop: Desk) -> None:
    with receiver(shop, "--unsigned") as url:
        assert posted(url) == 204
    assert shop.execute("SELECT amount FROM charges") == [(12,)]


def test_unsigned_together_with_secrets_is_refused(shop: Desk) -> None:
    command = ["consume", "--from", "http://127.0.0.1:0/hooks", "--app", "billing:inbox", "--unsigned"]
    shop(*command, "--secret", SECRET).refuses("leave out the secrets, or unsigned", code=2)


def test_a_secret_on_the_command_line_is_warned_of(shop: Desk) -> None:
    command = ["consume", "--from", "http://127.0.0.1:0/hooks", "--app", "billing:inbox", "--until-idle", "10ms"]
    said = shop(*command, "--secret", SECRET)
    assert said.err.startswith("note: --secret can be read by every user of this machine")
    assert SECRET not in said.out + said.err
    assert shop(*command, POSTROOM_SECRETS=SECRET).err == ""


def test_secrets_of_the_settings_do_not_forbid_another_broker(shop: Desk) -> None:
    """The relay signs webhooks with them; a queue is received from all the same."""
    command = ["consume", "--from", "memory://shop/orders", "--app", "billing:inbox", "--until-idle", "10ms"]
    assert shop(*command, POSTROOM_SECRETS_FILE="hooks.secrets").code == 0
