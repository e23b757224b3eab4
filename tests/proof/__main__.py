"""`make proof ARGS="--minutes 10 --seed 7"`: storms, kills, outages, random walks and mutants, in the time given.

Everything random follows from the seed. How processes take turns does not: the same seed does the same things to them, but
they may be hit in other moments."""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import chosen
from tests.proof.lengths import SECONDS, SEED_VARIABLE

DATABASES = ("sqlite", "postgres", "mariadb", "mongo")
BROKERS = ("kafka", "amqp", "nats", "redis", "sqs", "http")
KILLED = ("kafka", "amqp", "nats", "redis")
STORM = "tests/scenarios/test_six_relays.py::test_six_relays_in_a_storm_lose_nothing_and_keep_every_order"
TRIPS = "tests/scenarios/test_round_trip.py"
TRIP = f"{TRIPS}::test_every_message_has_its_effect_once_and_in_order"
OUTAGE = f"{TRIPS}::test_a_broker_that_is_killed_under_load_loses_nothing_and_every_effect_happens_once"
WALKS = "tests/mutants/test_walks.py::test_a_random_walk_keeps_every_promise"
STORM_SHARE = 0.5
"""So much of the time goes to storms; the rest lasts as long as it takes."""
SHORTEST_STORM = 12.0
MUTANTS_SHARE = 0.15
"""So much of it goes to mutants, which are all of one part of the source: the tests of each part cost a run without any."""
MUTANTS_FEWEST = 25
"""Fewer than these say too little about the tests to be a failure: the survivors are shown all the same."""


@dataclass(frozen=True)
class Part:
    """One program, what it is called here, and what it is started with."""

    name: str
    arguments: tuple[str, ...]


def parts(seed: str, minutes: float) -> Iterator[Part]:
    """Storms first: they are what most of the time is for."""
    yield from (_test(f"storm on {name}", f"{STORM}[{name}]") for name in DATABASES)
    yield _test("random walks of the relay", WALKS)
    yield _mutants(seed, minutes * MUTANTS_SHARE)
    yield from (_test(f"kills on the way over {name}", f"{TRIP}[{name}]") for name in BROKERS)
    yield from (_test(f"outages of {name}", f"{OUTAGE}[{name}]") for name in KILLED)


def _test(name: str, test: str) -> Part:
    return Part(name, ("pytest", "-p", "no:randomly", "-q", "-rP", "--no-header", test))


def _mutants(seed: str, minutes: float) -> Part:
    mutated = random.Random(seed).choice(chosen.PARTS).name
    options = (f"--seed={seed}", f"--minutes={minutes:g}", f"--part={mutated}", f"--fewest={MUTANTS_FEWEST}")
    return Part(f"mutants of {mutated}", ("tests.mutants.sample", "--number=10000", *options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them, a line each; the answer is 1 when one of them found something."""
    given = _parser().parse_args(arguments)
    end = time.monotonic() + 60 * given.minutes
    storm = max(60 * given.minutes * STORM_SHARE / len(DATABASES), SHORTEST_STORM)
    env = os.environ | {SECONDS: f"{storm:g}", SEED_VARIABLE: given.seed}
    print(f"Seed {given.seed}: {given.minutes:g} minutes, a storm of {storm:g} seconds on each database.", flush=True)
    found, left = [], []
    for part in parts(given.seed, given.minutes):
        if time.monotonic() > end:
            left.append(part.name)
        elif not _passes(part, env):
            found.append(part.name)
    if left:
        print(f"No time was left for: {', '.join(left)}.")
    if found:
        print(
            f"FOUND something in: {', '.join(found)}. Repeat it with --seed {given.seed} --minutes {given.minutes:g}."
        )
        return 1
    print(f"Nothing was lost, doubled or out of order (seed {given.seed}).")
    return 0


def _passes(part: Part, env: dict[str, str]) -> bool:
    begin = time.monotonic()
    command = [sys.executable, "-m", *part.arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    passed = done.returncode == 0
    said = re.findall(r"^\d[\d,]* (?:messages|kills|mutants).*$", done.stdout, re.MULTILINE)
    skipped = passed and not said and " passed" not in done.stdout
    verdict = "not run" if skipped else "well" if passed else "FOUND"
    print(f"{verdict:8}{part.name} ({time.monotonic() - begin:.0f} s) {'; '.join(said)}", flush=True)
    if not passed:
        print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    return passed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long in all, about; default: 30")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="what all that is random follows from")
    return parser


if __name__ == "__main__":
    sys.exit(main())
