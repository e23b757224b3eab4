from __future__ import annotations

from tests.unit.cli.running import Desk

ID = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"
DEAD = "UPDATE outbox SET outcome = 'dead', settled_at = 1, attempts = 6, last_error_code = 'HTTP_422', last_error = ?"


def test_a_message_is_explained_a_sentence_a_line(desk: Desk) -> None:
    desk("put", "a.b", "--key", "k", "--id", ID)
    explained = desk("explain", ID)
    assert (explained.code, explained.err) == (0, "")
    state, turn, lane = explained.out.splitlines()
    assert state.startswith("It is pending since 20")
    assert turn == "Nothing holds it back: it is next in line of its key."
    assert lane.endswith("no relay is running, so start one with `postroom relay`.")


def test_json_has_the_id_the_status_and_the_sentences(desk: Desk) -> None:
    desk("put", "a.b", "--id", ID)
    desk.execute(DEAD, "no")
    (shown,) = desk("explain", "--json", ID.upper()).objects()
    assert shown.keys() == {"id", "status", "sentences"}
    assert (shown["id"], shown["status"]) == (ID, "dead")
    assert shown["sentences"][0].startswith("It died at 1970-01-01 00:00:00Z (")
    assert shown["sentences"][0].endswith(" ago), after 6 tries: HTTP_422: no.")
    assert shown["sentences"][1] == "It may have been delivered, if an answer was lost."
    assert f"Run `postroom requeue {ID}` to send it again" in shown["sentences"][-1]


def test_what_a_terminal_would_obey_is_shown_as_an_escape(desk: Desk) -> None:
    desk("put", "a.b", "--id", ID)
    desk.execute(DEAD, "no\x1b[2J\nway")
    for options in ([], ["--json"]):
        out = desk("explain", ID, *options).out
        assert all(line.isprintable() for line in out.splitlines())
    assert r"HTTP_422: no\x1b[2J\nway." in desk("explain", ID).out


def test_an_unknown_id_fails_in_one_sentence(desk: Desk) -> None:
    for options in ([], ["--json"]):
        desk("explain", ID, *options).refuses(f"There is no message {ID} in this outbox", "`postroom list`", code=1)


def test_an_id_that_is_none_is_wrong_use(desk: Desk) -> None:
    desk("explain", "order-7").refuses("'order-7' is not a valid UUID", "postroom explain --help", code=2)
    desk("explain").refuses("Missing argument 'ID'", code=2)
