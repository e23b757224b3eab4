"""`python -m tests.mutants.sample --seed 7 --number 40`: change one place of the source at a time, and see if a test fails.

The places are drawn from all parts of the source, as the seed says. Each change is made in a copy of `src`, which the tests
import instead: the working tree is never touched. The tests are those that `chosen.py` names for the part. Mutants that
`equivalent.txt` lists are not counted. The answer is 1 when fewer than 92 of 100 are killed."""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from tests.mutants.chosen import NEVER, PARTS, Part, part_of
from tests.mutants.places import SOURCE, Place, places
from tests.servers.run import current

ROOT = SOURCE.parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
GOAL = 0.92
PATIENCE_SECONDS, PATIENCE_TIMES = 60, 3
"""A mutant may take that much longer than the unchanged source does; then it counts as killed."""
KILLED, SURVIVED, TIMED_OUT, EQUAL = "killed", "SURVIVED", "killed by time", "equivalent"


@dataclass(frozen=True)
class Verdict:
    """What the tests say of one mutant, and which of them."""

    part: str
    place: Place
    word: str
    test: str = ""

    def __str__(self) -> str:
        tail = f"  {self.test}" if self.test else f"\n    {self.place.summary}"
        return f"{self.word:15}{self.place}{tail}"


@dataclass
class Copy:
    """A copy of `src`, in which one thing at a time is changed."""

    root: Path
    paces: dict[str, tuple[float, float]] = field(default_factory=dict)
    """How long the tests of each part took on the unchanged source."""

    @classmethod
    def under(cls, folder: str) -> Copy:
        """Return a new copy. The documentation is beside it, where some tests look for it."""
        root = Path(tempfile.mkdtemp(prefix="copy-", dir=folder))
        shutil.copytree(SOURCE, root / "src" / "postroom", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "docs").symlink_to(ROOT / "docs")
        return cls(root)

    def write(self, file: str, source: bytes) -> None:
        """Put *source* into a file, and forget what Python compiled of it: the new text may have its size and time."""
        path = self.root / "src" / "postroom" / file
        path.write_bytes(source)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def judge(self, part: Part, place: Place) -> Verdict:
        """Return what the part's tests say of the source with this change."""
        if part.name not in self.paces:
            self.paces[part.name] = self._pace(part)
        source = (SOURCE / place.file).read_bytes()
        self.write(place.file, place.applied_to(source))
        try:
            for tests, quick, pace in zip((part.first, part.then), (True, False), self.paces[part.name], strict=True):
                word, test = self._run(tests, quick=quick, seconds=PATIENCE_SECONDS + PATIENCE_TIMES * pace)
                if word != SURVIVED:
                    return Verdict(part.name, place, word, test)
            return Verdict(part.name, place, SURVIVED)
        finally:
            self.write(place.file, source)

    def _pace(self, part: Part) -> tuple[float, float]:
        """Return how long the tests last on the unchanged source. Raises when one of them fails there."""
        paces = []
        for tests, quick in ((part.first, True), (part.then, False)):
            begin = time.monotonic()
            word, test = self._run(tests, quick=quick, seconds=3600)
            if word != SURVIVED:
                raise SystemExit(f"The tests of {part.name} fail on the unchanged source, first {test}.")
            paces.append(time.monotonic() - begin)
        print(f"               {part.name}: {paces[0]:.0f} s without a server, {paces[1]:.0f} s with one", flush=True)
        return paces[0], paces[1]

    def _run(self, tests: Sequence[str], *, quick: bool, seconds: float) -> tuple[str, str]:
        """Return what comes out, and which test failed first."""
        if not tests:
            return SURVIVED, ""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "--timeout=60"]
        command += ["-p", "no:cacheprovider", "-p", "no:randomly", *(["--quick"] if quick else [])]
        command += [*(f"--deselect={test}" for test in NEVER), *files(tests)]
        env = os.environ | {"PYTHONPATH": str(self.root / "src")}
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as run:
            try:
                said, _ = run.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, 9)
                return TIMED_OUT, f"no end after {seconds:.0f} s"
        if run.returncode in {0, 5}:  # 5: no test was chosen, where all of them want a server
            return SURVIVED, ""
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        word = TIMED_OUT if "Timeout (>" in said or "+ Timeout +" in said else KILLED
        return word, failed[1] if failed else f"nothing could be loaded: {said.strip().splitlines()[-1][:100]}"


def files(tests: Sequence[str]) -> Iterator[str]:
    """The tests as pytest wants them: it knows no patterns."""
    for test in tests:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(test)) if "*" in test else [test]


@cache
def candidates() -> Mapping[str, Sequence[Place]]:
    """Return every place that can be changed, by the name of its part."""
    found: dict[str, list[Place]] = {part.name: [] for part in PARTS}
    for file in sorted(SOURCE.rglob("*.py")):
        part = part_of(file.relative_to(SOURCE).as_posix())
        if part:
            found[part.name] += places(file)
    return found


def drawn(seed: str, number: int, names: Sequence[str] = ()) -> list[tuple[Part, Place]]:
    """Return so many places, of the parts in turn. A larger sample of one seed begins with the smaller one."""
    turns = []
    for part in PARTS:
        if not names or part.name in names:
            shuffled = random.Random(f"{seed}:{part.name}").sample(
                candidates()[part.name], len(candidates()[part.name])
            )
            turns += [[(part, place) for place in shuffled[each :: part.weight]] for each in range(part.weight)]
    return [one for turn in zip_longest(*turns) for one in turn if one][:number]


def equivalents() -> frozenset[str]:
    """Return the changes that were judged to change nothing."""
    lines = EQUIVALENT.read_text().splitlines()
    return frozenset(line for line in lines if line.strip() and not line.startswith(("#", " ")))


def sample(chosen: Sequence[tuple[Part, Place]], end: float, jobs: int) -> list[Verdict]:
    """Judge the mutants until the time is over, each with a line of its own."""
    verdicts, printing, known = [], Lock(), equivalents()
    current()  # the servers are shared by all the runs below
    with tempfile.TemporaryDirectory(prefix="postroom-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(jobs):
            copies.put(Copy.under(folder))

        def judge(part: Part, place: Place) -> None:
            if time.monotonic() > end:
                return
            copy = copies.get()
            try:
                verdict = Verdict(part.name, place, EQUAL) if place.key in known else copy.judge(part, place)
            finally:
                copies.put(copy)
            with printing:
                print(verdict, flush=True)
                verdicts.append(verdict)

        for done in [pool.submit(judge, part, place) for part, place in chosen]:
            done.result()
    return verdicts


def rate(verdicts: Sequence[Verdict]) -> float:
    """Return which share of the mutants was killed, of those that are not equivalent. Of none, all were."""
    counted = [verdict for verdict in verdicts if verdict.word != EQUAL]
    return sum(verdict.word != SURVIVED for verdict in counted) / len(counted) if counted else 1.0


def summary(verdicts: Sequence[Verdict], left: int) -> Iterator[str]:
    """Yield the table: how many were killed in each part, and in all."""
    for part in PARTS:
        mine = [verdict for verdict in verdicts if verdict.part == part.name]
        if mine:
            yield f"  {part.name:26}{_counts(mine)}"
    yield f"{len(verdicts)} mutants: {_counts(verdicts)}{f'; no time was left for {left}' if left else ''}"


def _counts(verdicts: Sequence[Verdict]) -> str:
    words = Counter(verdict.word for verdict in verdicts)
    killed = words[KILLED] + words[TIMED_OUT]
    said = f"{killed} killed ({words[TIMED_OUT]} by time), {words[SURVIVED]} survived, {words[EQUAL]} equivalent"
    return f"{said}: {rate(verdicts):.0%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the sample, judge it, and say what came out."""
    given = _parser().parse_args(arguments)
    chosen = drawn(given.seed, given.number, given.part)
    total = sum(len(found) for found in candidates().values())
    print(f"Seed {given.seed}: {len(chosen)} of {total:,} places.", flush=True)
    end = time.monotonic() + 60 * given.minutes
    verdicts = sample(chosen, end, given.jobs)
    print("\n".join(summary(verdicts, len(chosen) - len(verdicts))))
    judged = sum(verdict.word != EQUAL for verdict in verdicts)
    return 1 if judged >= given.fewest and rate(verdicts) < GOAL else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.sample", description=__doc__)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="what is drawn follows from it")
    parser.add_argument("--number", type=int, default=40, help="how many mutants; default: 40")
    parser.add_argument(
        "--part", action="append", choices=[part.name for part in PARTS], help="of this part alone; may be repeated"
    )
    parser.add_argument("--minutes", type=float, default=600, help="begin no other mutant after so long")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once; default: 1")
    parser.add_argument("--fewest", type=int, default=1, help="a sample of fewer than these is told, but does not fail")
    return parser


if __name__ == "__main__":
    sys.exit(main())
