"""The example of the transfers, as its README says, against a real Kafka and a real PostgreSQL."""

from __future__ import annotations

import re

import psycopg
import pytest
from tests.examples.readme import Example
from tests.servers.topics import fresh_topic

TRANSFERS = 1_200


@pytest.mark.timeout(240)
@pytest.mark.requirement("A9", "C8")
def test_every_transfer_is_looked_at_once_also_when_all_of_them_come_again(
    kafka_url: str, postgres_database: str
) -> None:
    example = Example("transfers", postgres_database)
    with fresh_topic(kafka_url) as topic:
        said = ""
        for command in example.blocks()[0]:
            line = command.replace("kafka://broker:9092/transfers", f"{kafka_url}/{topic}").replace(
                "1000", str(TRANSFERS)
            )
            said = example.run(line)
        assert re.search(rf"fraud-detection +{TRANSFERS:,} +0 +0 +0", said)
        before = judged(postgres_database)
        again = f"postroom consume --from {kafka_url}/{topic} --app fraud:inbox --group again-{topic} --until-idle 5s"
        assert f"known {TRANSFERS:,}" in example.run(again)
        assert judged(postgres_database) == before


def judged(url: str) -> tuple[int, int]:
    """The turnover and the suspicions, each of which must be what the bank booked."""
    with psycopg.connect(url) as connection:

        def number(query: str) -> int:
            row = connection.execute(query).fetchone()
            return int(row[0]) if row else 0

        turnover, suspicions = number("SELECT sum(total) FROM turnover"), number("SELECT count(*) FROM suspicions")
        assert turnover == number("SELECT sum(amount) FROM transfers")
        assert suspicions == number("SELECT count(*) FROM transfers WHERE amount >= 10000") > 0
        assert number("SELECT count(*) FROM transfers") == TRANSFERS
    return turnover, suspicions
