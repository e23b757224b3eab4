"""The tree of errors: drawn as it is, picklable, and each says whether trying again may help."""

from __future__ import annotations

import inspect
import pickle

import pytest

from postroom import errors
from postroom.errors import PostroomError

ERRORS = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, PostroomError)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_survives_pickling_with_its_facts(error: type[PostroomError]) -> None:
    one = error("what happened, to which thing, what to do", table="outbox")
    again = pickle.loads(pickle.dumps(one))
    assert (type(again), str(again), again.facts) == (error, str(one), {"table": "outbox"})


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_is_drawn_in_the_tree(error: type[PostroomError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


def test_only_what_is_away_is_worth_trying_again() -> None:
    assert {error.__name__ for error in ERRORS if error.transient} == {"StoreUnavailable", "TransportUnavailable"}
