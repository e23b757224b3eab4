"""`pytest --quick` starts no server, and its list names files that exist."""

from __future__ import annotations

import pytest

from tests import quick
from tests.servers import guard

pytest_plugins = ["pytester"]

ASKS = """
    import pytest
    from tests.servers import guard
    from tests.servers.model import Place

    @pytest.fixture
    def postgres_home():
        return None

    @pytest.fixture
    def home(postgres_home):
        return None

    @pytest.fixture(params=["sqlite", "mariadb"])
    def store(request):
        return request.param

    def test_by_a_fixture_of_a_fixture(home):
        pass

    def test_by_a_parameter(store):
        pass

    def test_asks_for_none(tmp_path):
        pass

    def test_starts_one_unseen(tmp_path):
        place, command = Place(tmp_path, tmp_path / "owner", None), guard.Command(["true"], tmp_path, {})
        guard.serve(place, lambda port: command, lambda port: "1.0")
"""


@pytest.mark.parametrize("place", quick.PLACES)
def test_the_list_names_what_exists(place: str) -> None:
    assert quick.files(place)


def test_a_place_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="nowhere"):
        quick.files("nowhere/test_*.py")


def test_a_test_that_asks_for_a_server_is_left_out_or_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ASKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_launch", guard._launch)  # put back what the run inside changes
        result = pytester.inline_run("-p", "tests.quick", "-p", "no:randomly", "--quick", str(pytester.path))
    passed, _, failed = result.listoutcomes()
    assert [_name(report) for report in passed] == ["test_by_a_parameter[sqlite]", "test_asks_for_none"]
    assert [_name(report) for report in failed] == ["test_starts_one_unseen"]
    assert "A test asked for a server" in str(failed[0].longrepr)


def _name(report: pytest.CollectReport | pytest.TestReport) -> str:
    return report.nodeid.split("::")[1]
