"""The wiki: a revision of a page, and what must follow from it, are one commit. There is no broker.

python wiki.py edit 60               makes 60 revisions of a few pages
python wiki.py save PAGE TEXT        saves one
python wiki.py show PAGE             what a reader sees
python wiki.py find WORD             the pages that have it
python wiki.py allow MACRO           lets the renderer know one macro more
"""

import os
import sys
from typing import Any

from pymongo import MongoClient, ReturnDocument
from pymongo.client_session import ClientSession

from postroom import Message, Outbox

PAGES = ("Home", "Postroom", "Rivers", "Bridges", "Sandbox")
client: MongoClient[dict[str, Any]] = MongoClient(os.environ["POSTROOM_STORE"])
wiki = client.get_default_database()
outbox = Outbox()


def save(session: ClientSession, page: str, text: str) -> int:
    """Save a revision, and say what follows from it; or neither. Two who save the same page at once are tried again."""

    def write(session: ClientSession) -> int:
        head = wiki.pages.find_one_and_update(
            {"_id": page}, {"$inc": {"revision": 1}}, upsert=True, return_document=ReturnDocument.AFTER, session=session
        )
        revision = int(head["revision"])
        record = {"_id": f"{page}:{revision}", "page": page, "revision": revision, "text": text}
        wiki.revisions.insert_one(record, session=session)
        outbox.put_many(session, news(page, revision, text))
        return revision

    return session.with_transaction(write)


def news(page: str, revision: int, text: str) -> list[Message]:
    """One message for each stream. A page is a line of its own in each: what stops one stream does not stop the others."""
    data = {"page": page, "revision": revision}
    streams = ["wiki", "search", *(["media"] if "image:" in text else [])]
    return [Message(f"{stream}.saved", key=f"{stream}:{page}", data=data) for stream in streams]


def edit(number: int) -> None:
    """Many revisions of a few pages; every third shows an image."""
    for each in ("pages", "revisions"):  # a transaction is quicker when its collections are there
        if each not in wiki.list_collection_names():
            wiki.create_collection(each)
    with client.start_session() as session:
        for at in range(number):
            image = f" image:photo{at}.png" if at % 3 == 0 else ""
            save(session, PAGES[at % len(PAGES)], f"Edit {at} by hand{at}{image}")
    print(f"saved {number} revisions")


def show(page: str) -> str:
    """What a reader sees: the newest revision that was rendered."""
    found = wiki.shown.find_one({"_id": page})
    return f"{page}, revision {found['revision']}: {found['html']}" if found else f"{page} is not rendered yet"


def main(command: str, *words: str) -> None:
    match command, *words:
        case "edit", number:
            edit(int(number))
        case "save", page, text:
            with client.start_session() as session:
                print(f"saved revision {save(session, page, text)} of {page}")
        case "show", page:
            print(show(page))
        case "find", word:
            print(" ".join(sorted(found["_id"] for found in wiki.search.find({"words": word.lower()}))) or "nothing")
        case "allow", macro:
            wiki.macros.update_one({"_id": macro}, {"$set": {"html": f"<figure>{macro}</figure>"}}, upsert=True)
            print(f"the renderer knows {macro} now")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    with client:
        main(*(sys.argv[1:] or ["help"]))
