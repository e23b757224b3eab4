"""Amazon SQS: given, or moto's server, which keeps its queues in memory."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from tests.servers import guard
from tests.servers.guard import Command
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK, listens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

REGION = "eu-central-1"
LAUNCHER = Path(__file__).with_name("moto_like_aws.py")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "postroom", "AWS_SECRET_ACCESS_KEY": "postroom"}
"""Moto takes any; without some the client asks nobody."""


def environment(place: Place) -> Found:
    """The queues at POSTROOM_TEST_SQS, as in sqs://eu-central-1?endpoint=http://127.0.0.1:4566."""
    from botocore.exceptions import BotoCoreError, ClientError

    from tests.servers.queues import client_of

    url = os.environ.get("POSTROOM_TEST_SQS")
    if not url or "://" not in url:
        raise NotHere("POSTROOM_TEST_SQS is not set to a URL.")
    try:
        client_of(url).list_queues(MaxResults=1)
    except (BotoCoreError, ClientError) as error:
        raise NotHere(f"It does not answer: {error}") from None
    return Found(url, "unknown")  # it does not tell


def wheel(place: Place) -> Found:
    """Moto, made to judge as AWS does."""
    try:
        number = version("moto")
    except PackageNotFoundError:
        raise NotHere("The package moto is not installed.") from None
    port, _ = guard.serve(place, lambda port: command(place, port), lambda port: ready(port, number))
    return Found(url_at(port), number)


SOURCES: Mapping[str, Source] = {"environment": environment, "wheel": wheel}


def url_at(port: int) -> str:
    """The URL of an SQS there, without a queue in it."""
    return f"sqs://{REGION}?endpoint=http://{LOOPBACK}:{port}"


def command(place: Place, port: int, **more: str) -> Command:
    """How moto is run."""
    env = {"PATH": os.environ["PATH"], "HOME": os.fspath(place.directory), **more}
    return Command([sys.executable, LAUNCHER, str(port)], place.directory, env, is_ours=True)


def ready(port: int, number: str) -> str | None:
    """Its version once it answers as moto does."""
    if not listens(port):
        return None
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/moto-api/data.json", timeout=5) as answer:
            return number if answer.status == 200 else None
    except OSError:
        return None
