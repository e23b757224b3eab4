"""What every test may use: real servers, started once per run by `tests.servers`."""

import pytest

# The scenes' assertions say what they saw, as those of tests do. Here, before any test imports them.
pytest.register_assert_rewrite("tests.mutants.scenes", "tests.mutants.walk", "tests.mutants.world")
pytest_plugins = ["tests.servers.plugin"]
