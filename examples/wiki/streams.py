"""What follows from a revision: functions that the relay calls. Each may be called twice for the same message, by design.

So each writes by an upsert on a natural key, `page:revision`, and what readers see never goes back to an older revision.
"""

import re
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError
from wiki import wiki

from postroom import Message


def render(message: Message) -> None:
    """Stream `wiki`: make a page of the text. A macro that nobody knows is an error, which a person has to fix."""
    revision = _revision(message)
    html = re.sub(r"\{\{(\w+)\}\}", _macro, revision["text"])
    wiki.rendered.update_one({"_id": revision["_id"]}, {"$set": {"html": f"<p>{html}</p>"}}, upsert=True)
    _newest(wiki.shown, revision, html=f"<p>{html}</p>")


def index(message: Message) -> None:
    """Stream `search`: which words are on the page."""
    revision = _revision(message)
    words = sorted({word.lower() for word in re.findall(r"\w+", revision["text"])})
    _newest(wiki.search, revision, words=words)


def thumbnail(message: Message) -> None:
    """Stream `media`: make the images of this revision small; here it is only noted that it was done."""
    revision = _revision(message)
    images = re.findall(r"image:(\S+)", revision["text"])
    wiki.thumbnails.update_one({"_id": revision["_id"]}, {"$set": {"images": images}}, upsert=True)


def _revision(message: Message) -> dict[str, Any]:
    """The record that the message is about: they were one commit, so it is there."""
    [found] = wiki.revisions.find({"_id": f"{message.data['page']}:{message.data['revision']}"})
    return found


def _newest(collection: Collection[dict[str, Any]], revision: dict[str, Any], **what: object) -> None:
    """Write it for the page, unless a later revision was there first."""
    older = {"_id": revision["page"], "revision": {"$lte": revision["revision"]}}
    try:
        collection.update_one(older, {"$set": {"revision": revision["revision"], **what}}, upsert=True)
    except DuplicateKeyError:  # the page is there, and none that is older: a later revision stays
        return


def _macro(found: re.Match[str]) -> str:
    known = wiki.macros.find_one({"_id": found[1]})
    if known is None:
        raise LookupError(f"nobody knows the macro {found[1]}")
    return str(known["html"])
