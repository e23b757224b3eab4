"""What the processes of tests begin with, whoever started the tests."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests import conftest

SAYS = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
LOADS = f"import tests.conftest, subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS!r}], check=True)"


def test_a_child_of_a_test_does_not_ignore_sigint_where_the_tests_began_with_it_ignored() -> None:
    def ignored() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    root = conftest.__file__.removesuffix("tests/conftest.py")
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            preexec_fn=ignored,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for program in (SAYS, LOADS)
    ]
    assert told == ["True\n", "False\n"]
