"""Six relays, twelve keys, random failures, kills, sleeps and stops, on every database: nothing is lost,
no ghost is delivered, no key is out of order, and nothing comes again but for a fault.

It is a sample, of some seconds; `make proof` lets it last."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.proof.lengths import SEED
from tests.proof.lengths import STORM_SECONDS as SECONDS
from tests.scenarios.storm import Storm, name_of, storm

from postroom.contracts.ops import Query
from postroom.testing.journal import Run, check

pytestmark = pytest.mark.timeout(SECONDS + 300)


@pytest.mark.requirement("B3", "C4", "C10")
async def test_six_relays_in_a_storm_lose_nothing_and_keep_every_order(database: str, tmp_path: Path) -> None:
    print(f"POSTROOM_PROOF_SEED={SEED} POSTROOM_PROOF_SECONDS={SECONDS:g}")
    async with storm(database, tmp_path, SEED) as weather:
        await weather.rage(SECONDS)
        weather.shoppers.stop()
        await weather.calm()
        await judge(weather)


async def judge(weather: Storm) -> None:
    records = await weather.store.ops.find(Query())
    epochs = {lane.lane: lane.epoch for lane in await weather.store.lanes.all()}
    tries = Counter({name_of(record): record.attempts for record in records}) + weather.spent
    journal = weather.journal()
    put, taken_over = weather.shoppers.committed, sum(epochs[lane] > e for lane, e in weather.orphaned.items())
    repeated = len(journal) - len({delivery.name for delivery, _ in journal})
    print(
        f"{len(put)} messages committed, {len(weather.shoppers.rolled_back)} rolled back; {len(journal)} deliveries, "
        f"{repeated} of them repeats; {weather.started} relays, faults {dict(weather.faults)}; "
        f"{weather.in_flight.total()} messages in flight at a kill or a sleep; {taken_over} lanes taken over; "
        f"{sum(number > 1 for number in tries.values())} messages tried again"
    )
    assert weather.shoppers.orders() == set(put), "the producers know what they committed"
    # Each try that the store counted was one fault, but the last: it lost its relay, or failed, or nobody knows.
    faults = {name: number - 1 for name, number in tries.items()}
    found = {name_of(record): record.status for record in records}
    check(Run(put=put, journal=[delivery for delivery, _ in journal], found=found, faults=faults))
    assert set(found.values()) == {"published"}
    enough = max(int(SECONDS / 10), 1)
    assert min(weather.faults[kind] for kind in ("kill", "sleep", "end")) >= enough, "too few faults"
    assert weather.in_flight.total() >= enough, "the faults hit nothing"
    assert taken_over == len(weather.orphaned) > 0, "a lane of a dead or sleeping relay was never taken over"
    assert sum(number > 1 for number in tries.values()) >= enough, "nothing was retried"
    assert len(weather.shoppers.rolled_back) >= enough, "nothing was rolled back"
    assert Counter(how for _, how in journal).keys() >= {"well", "failed"}, "no handler failed after its effect"
