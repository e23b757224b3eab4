"""The example of the wiki, as its README says, on a real replica set of MongoDB, with a relay that is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from tests.examples.readme import Example

REVISIONS = 60
SHORT = {"POSTROOM_SEND_TIMEOUT": "1s", "POSTROOM_LEASE": "3s"}
"""So that the next relay need not wait long for the lanes of the one that was killed."""

Documents = Database[dict[str, Any]]


@pytest.fixture
def wiki(mongo_database: str) -> Iterator[Documents]:
    with MongoClient[dict[str, Any]](mongo_database) as client:
        yield client.get_default_database()


@pytest.mark.timeout(240)
@pytest.mark.requirement("E2", "E3", "E6")
def test_each_revision_is_rendered_and_indexed_and_the_latest_wins(mongo_database: str, wiki: Documents) -> None:
    example = Example("wiki", mongo_database)
    first, poison, mended = example.blocks()
    said: dict[str, str] = {}
    for line in first:
        if line == "postroom relay --drain":
            kill_one_at_work(example, wiki)
        said[line] = example.run(line, **SHORT)
    every_revision_has_its_due(wiki, REVISIONS)
    assert "revision 12: <p>Edit 57 by hand57 " in said["python wiki.py show Rivers"]
    assert said["python wiki.py find hand57"] == "Rivers\n"
    assert example.run("python wiki.py find hand52") == "nothing\n", "an older revision of a page is not found"

    for line in poison:
        said[line] = example.run(line, **SHORT)
    assert "nobody knows the macro chart" in str(wiki.outbox.find_one({"outcome": "dead"}))
    assert "wiki.saved" in said["postroom list --status dead"]
    assert said["python wiki.py find sales"] == "Sandbox\n", "the search went on"
    assert "revision 12:" in example.run("python wiki.py show Sandbox"), "the page did not"
    status = json.loads(example.run("postroom status --json"))
    assert (status["dead"], status["pending"]) == (1, 1)

    for line in mended:
        said[line] = example.run(line, **SHORT)
    assert said["python wiki.py show Sandbox"] == "Sandbox, revision 14: <p>Sales in words</p>\n"
    assert wiki.rendered.find_one({"_id": "Sandbox:13"}) == {
        "_id": "Sandbox:13",
        "html": "<p>Sales: <figure>chart</figure></p>",
    }
    every_revision_has_its_due(wiki, REVISIONS + 2)


def kill_one_at_work(example: Example, wiki: Documents) -> None:
    """A relay that has begun, and does not come to its end."""
    with example.start("postroom relay --batch 8 --concurrency 1", **SHORT) as relay:
        try:
            end = time.monotonic() + 60
            while wiki.rendered.estimated_document_count() < 5:
                assert relay.poll() is None
                assert time.monotonic() < end, "it does not begin"
                time.sleep(0.002)
        finally:
            relay.kill()
    assert wiki.rendered.count_documents({}) < REVISIONS, "it was killed in the midst of it"


def every_revision_has_its_due(wiki: Documents, number: int) -> None:
    revisions = {each["_id"]: each for each in wiki.revisions.find()}
    assert len(revisions) == number
    assert {each["_id"] for each in wiki.rendered.find()} == set(revisions)
    assert {each["_id"] for each in wiki.thumbnails.find()} == {
        name for name, each in revisions.items() if "image:" in each["text"]
    }
    newest = {each["_id"]: each["revision"] for each in wiki.pages.find()}
    for what in (wiki.shown, wiki.search):
        assert {each["_id"]: each["revision"] for each in what.find()} == newest
    assert wiki.outbox.count_documents({"outcome": {"$ne": "published"}}) == 0
