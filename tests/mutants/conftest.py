"""The scenes' assertions say what they saw, as those of tests do."""

import pytest

pytest.register_assert_rewrite("tests.mutants.scenes", "tests.mutants.walk", "tests.mutants.world")
