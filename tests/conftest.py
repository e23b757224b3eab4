"""What every test may use: real servers, started once per run by `tests.servers`."""

import os
import signal
from collections.abc import Generator

import hypothesis
import pytest

# How long an example takes, the machine decides: a slow one is no mistake of the code.
hypothesis.settings.register_profile("postroom", deadline=None)
hypothesis.settings.load_profile("postroom")

# A background job, or one under nohup, begins with SIGINT ignored, and every process that a test starts would inherit
# that: a test that sends it would wait for ever. With a handler of ours, the children begin with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a command prints must not depend on the terminal that the tests were started from.
os.environ.pop("COLUMNS", None)

# The scenes' assertions say what they saw, as those of tests do. Here, before any test imports them.
pytest.register_assert_rewrite("tests.mutants.scenes", "tests.mutants.walk", "tests.mutants.world")
pytest_plugins = ["tests.servers.plugin", "tests.quick", "tests.order"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what was captured travel between processes: a log line may hold half of a surrogate pair, which ends a worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode("utf-8")) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that every test which is a coroutine runs in."""
    return "asyncio"
