from __future__ import annotations

import dataclasses
import os
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.config.load import load_settings
from postroom.config.values import LEASE_PER_SEND, Limits, RelayConfig, Settings, TableNames
from postroom.durations import format_duration, parse_duration
from postroom.errors import ConfigError
from postroom.retry import Exponential, RetryPolicy, Table

if TYPE_CHECKING:
    from pathlib import Path

SECOND = timedelta(seconds=1)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "postroom.toml"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("postgresql://app:s3cr3t@db/shop\n")
    path.chmod(0o600)
    return path


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("2s", 2),
        ("10m", 600),
        ("7d", 604_800),
        ("1h30m", 5_400),
        ("0.5s", 0.5),
        ("2500ms", 2.5),
        ("30", 30),
        ("0.25", 0.25),
        (" 2s ", 2),
        ("1d2h3m4s5ms", 93_784.005),
        (5, 5),
        (0.5, 0.5),
        (timedelta(minutes=1), 60),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str | float | timedelta, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "", "s", "2 s", "1m1h", "2S", "1e3", "-1", "-1s", "1.s", ".5s", "five", "nan", "inf", "٣s", "2s\n3s",
        "9" * 400, "99999999999d", -1, float("nan"), float("inf"), True, timedelta(seconds=-1), None, [5],
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(ConfigError, match="is not a valid duration; write it like 500ms, 2s, 1h30m or 7d"):
        parse_duration(value)


@given(st.timedeltas(timedelta(0)))
def test_a_duration_reads_back_as_it_was_written(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert parse_duration(text) >= timedelta(0)


# The values


@pytest.mark.requirement("B4")
def test_the_relay_has_the_defaults_of_the_worker_protocol_but_for_its_lease() -> None:
    config = RelayConfig()
    assert not config.enabled
    assert (config.concurrency, config.first_batch, config.max_attempts) == (4, 32, 6)
    assert (config.poll, config.lease, config.send_timeout) == (0.5 * SECOND, 30 * SECOND, 2.5 * SECOND)
    assert config.backoff == Table(tuple(n * SECOND for n in (5, 10, 20, 40, 80, 160)))
    assert config.retry == RetryPolicy.WORKER


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, (32, 4_096)),
        ({"batch": 32}, (32, 32)),
        ({"batch": 10_000}, (10_000, 10_000)),
        ({"batch": 10, "batch_max": 100}, (10, 100)),
        ({"batch": 10, "batch_max": 10}, (10, 10)),
        ({"batch_max": 1_000}, (32, 1_000)),
        ({"batch_max": 5}, (5, 5)),
    ],
)
def test_a_batch_given_by_hand_is_fixed_and_else_it_grows(given: dict[str, int], sizes: tuple[int, int]) -> None:
    config = RelayConfig(**given)  # type: ignore[arg-type]  # only whole numbers
    assert (config.first_batch, config.largest_batch) == sizes


def test_a_batch_larger_than_its_most_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch is 1,000 with a batch_max of 100; .* give a larger batch_max"):
        RelayConfig(batch=1_000, batch_max=100)


def test_a_lease_shorter_than_the_send_timeout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lease is 2s with a send_timeout of 2.5s; a lease must be at least 2 times"):
        RelayConfig(lease=2 * SECOND)


def test_a_lease_of_just_enough_send_timeouts_is_taken() -> None:
    assert RelayConfig(lease=LEASE_PER_SEND * SECOND, send_timeout=SECOND).send_timeout == SECOND


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"batch": 0}, "batch is 0; it must be a whole number from 1 to 10,000."),
        ({"batch": 10_001}, "batch is 10,001; it must be a whole number from 1 to 10,000."),
        ({"batch": "32"}, "batch is '32'; it must be a whole number from 1 to 10,000."),
        ({"batch": True}, "batch is True; it must be a whole number from 1 to 10,000."),
        ({"concurrency": 1_001}, "concurrency is 1,001; it must be a whole number from 1 to 1,000."),
        ({"max_attempts": 0}, "max_attempts is 0; it must be a whole number from 1 to 1,000,000."),
        ({"poll": timedelta(0)}, "poll is 0s; it must be a duration from 1ms to 1h."),
        ({"poll": 0.5}, "poll is 0.5; it must be a duration from 1ms to 1h."),
        ({"lease": -SECOND}, "lease is -1000ms; it must be a duration from 100ms to 1d."),
        ({"send_timeout": timedelta(0)}, "send_timeout is 0s; it must be a duration from 1ms to 1h."),
    ],
)
def test_a_setting_beyond_its_limit_is_refused_with_the_limit(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RelayConfig(**wrong)
    assert str(refused.value) == sentence


def test_a_body_has_a_hard_ceiling() -> None:
    assert Limits().body == 256 * 1024
    assert Limits(body=1024 * 1024).body == 1024 * 1024
    with pytest.raises(ConfigError, match="body is 1,048,577; it must be a whole number from 1 to 1,048,576"):
        Limits(body=1024 * 1024 + 1)


def test_what_is_as_wide_as_its_column_can_only_be_lowered() -> None:
    assert Limits(type=50, key=50, topic=50) != Limits()
    for wrong in ({"type": 201}, {"key": 201}, {"topic": 256}):
        with pytest.raises(ConfigError):
            Limits(**wrong)


def test_tables_are_named_after_their_prefix() -> None:
    tables = TableNames(prefix="post")
    assert [tables.name(), tables.name("lane"), tables.name("messages")] == [
        "post",
        "post_lane",
        "post_messages",
    ]
    assert tables.qualified("claim") == '"post_claim"'
    assert TableNames(schema="shop").qualified() == '"shop"."outbox"'


@pytest.mark.parametrize(
    "name", ["", "1box", "Box", "box-1", 'box"; DROP TABLE x; --', "box\n", "bøx", "x" * 49, "a.b"]
)
def test_a_table_prefix_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is a table prefix that is not an identifier"):
        TableNames(prefix=name)
    with pytest.raises(ConfigError, match="is a schema that is not an identifier"):
        TableNames(schema=name)


@pytest.mark.parametrize("name", ["inbox", "inbox_dead", "post_inbox", "post_inbox_dead"])
def test_a_prefix_that_the_inbox_of_another_is_called_by_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="who drops one would drop the other; choose one that does not end in inbox"):
        TableNames(prefix=name)
    assert TableNames(prefix="post").name("inbox") == "post_inbox"
    assert TableNames(schema=name).name("inbox") == "inbox"


@given(st.from_regex(r"[a-z_][a-z0-9_]{0,46}x", fullmatch=True).filter(lambda name: not name.endswith("inbox")))
def test_every_table_name_fits_postgres(prefix: str) -> None:
    tables = TableNames(prefix=prefix)
    assert len(tables.name("messages")) <= 63
    assert len(tables.name("inbox") + "_requeued") <= 63, "the longest name of an index"


@pytest.mark.parametrize("lanes", [0, 1_025])
def test_the_number_of_lanes_has_limits(lanes: int) -> None:
    with pytest.raises(ConfigError, match="it must be a whole number from 1 to 1,024"):
        Settings(lanes=lanes)


def test_settings_show_no_url() -> None:
    assert "s3cr3t" not in repr(Settings(store="postgresql://app:s3cr3t@db", to="amqp://app:s3cr3t@mq"))


def test_no_value_can_be_changed() -> None:
    for value in (RelayConfig(), Limits(), TableNames(), Settings()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)


# Where they come from


def test_without_anything_given_the_defaults_hold() -> None:
    assert load_settings(env={}) == Settings()


def test_code_wins_over_the_environment_and_that_over_the_file(toml: Path) -> None:
    toml.write_text('store = "sqlite:///file.db"\n[relay]\nbatch = 1\npoll = "1s"\nconcurrency = 1')
    env = {"POSTROOM_BATCH": "2", "POSTROOM_POLL": "2s"}
    settings = load_settings(env=env, toml=toml, poll="3s")
    assert settings.relay == RelayConfig(concurrency=1, batch=2, poll=3 * SECOND)
    assert settings.store == "sqlite:///file.db"
    assert settings.lanes == 64


@pytest.mark.requirement("B4")
def test_each_setting_has_its_variable() -> None:
    env = {
        "POSTROOM_STORE": "sqlite:///shop.db",
        "POSTROOM_TO": "local://shop:deliver",
        "POSTROOM_ENABLED": "Yes",
        "POSTROOM_CONCURRENCY": "8",
        "POSTROOM_BATCH": "500",
        "POSTROOM_BATCH_MAX": "5000",
        "POSTROOM_POLL": "250ms",
        "POSTROOM_LEASE": "30",
        "POSTROOM_MAX_ATTEMPTS": "5",
        "POSTROOM_BACKOFF": "exp:2s..10m",
        "POSTROOM_SEND_TIMEOUT": "1s",
        "POSTROOM_TABLE_PREFIX": "post",
        "POSTROOM_SCHEMA": "shop",
        "POSTROOM_LANES": "16",
        "POSTROOM_LIMIT_BODY": "1024",
    }
    assert load_settings(env=env) == Settings(
        store="sqlite:///shop.db",
        to="local://shop:deliver",
        lanes=16,
        relay=RelayConfig(
            enabled=True,
            concurrency=8,
            batch=500,
            batch_max=5_000,
            poll=SECOND / 4,
            lease=30 * SECOND,
            max_attempts=5,
            backoff=Exponential(2 * SECOND, 600 * SECOND),
            send_timeout=SECOND,
        ),
        tables=TableNames(prefix="post", schema="shop"),
        limits=Limits(body=1024),
    )


def test_each_setting_has_its_key_in_the_file(toml: Path) -> None:
    toml.write_text("""
        store = "sqlite:///shop.db"
        to = "local://shop:deliver"
        lanes = 16
        [relay]
        enabled = true
        poll = 0.25
        lease = 30
        backoff = [5, "1m"]
        [tables]
        prefix = "post"
        schema = "shop"
        [limits]
        header_value = 100
    """)
    backoff = Table((5 * SECOND, 60 * SECOND))
    assert load_settings(env={}, toml=toml) == Settings(
        store="sqlite:///shop.db",
        to="local://shop:deliver",
        lanes=16,
        relay=RelayConfig(enabled=True, poll=SECOND / 4, lease=30 * SECOND, backoff=backoff),
        tables=TableNames(prefix="post", schema="shop"),
        limits=Limits(header_value=100),
    )


def test_code_may_give_values_or_text() -> None:
    backoff = Table((SECOND,))
    assert load_settings(env={}, poll=SECOND, backoff=backoff, batch=7) == load_settings(
        env={}, poll="1s", backoff="1", batch="7"
    )


def test_none_and_an_empty_variable_count_as_not_given() -> None:
    assert load_settings(env={"POSTROOM_BATCH": "", "POSTROOM_STORE": ""}, batch=None) == Settings()


@pytest.mark.requirement("B4")
def test_the_preset_worker_has_the_numbers_of_the_worker_protocol() -> None:
    config = load_settings(env={"POSTROOM_PRESET": "worker"}).relay
    assert not config.enabled
    assert (config.concurrency, config.first_batch, config.largest_batch, config.max_attempts) == (4, 32, 32, 6)
    assert (config.poll, config.lease, config.send_timeout) == (0.5 * SECOND, 120 * SECOND, 2.5 * SECOND)
    assert config.backoff == Table(tuple(n * SECOND for n in (5, 10, 20, 40, 80, 160)))


@pytest.mark.requirement("C2", "C3")
def test_the_preset_kafka_has_batches_of_500_and_five_tries_from_two_seconds_to_ten_minutes(toml: Path) -> None:
    toml.write_text('preset = "kafka"')
    config = load_settings(env={}, toml=toml).relay
    assert (config.first_batch, config.largest_batch, config.max_attempts) == (500, 500, 5)
    assert config.backoff == Exponential(2 * SECOND, 600 * SECOND)
    assert config.lease == RelayConfig().lease


def test_what_is_given_beside_a_preset_wins_wherever_it_is_given(toml: Path) -> None:
    toml.write_text('[relay]\nlease = "45s"\nbackoff = "transfers"')
    settings = load_settings(env={"POSTROOM_BATCH": "7"}, toml=toml, preset="worker")
    assert settings.preset == "worker"
    assert settings.relay == RelayConfig(
        batch=7, lease=45 * SECOND, backoff=RetryPolicy.TRANSFERS.backoff, max_attempts=5
    )


def test_a_preset_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="preset is 'turbo'; it must be worker or kafka"):
        load_settings(env={"POSTROOM_PRESET": "turbo"})


def test_a_variable_of_somebody_else_is_no_concern() -> None:
    assert load_settings(env={"POSTROOM_FAILPOINT": "x", "BATCH": "y"}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("POSTROOM_BATCH", "many", "POSTROOM_BATCH: 'many' is not a whole number such as 32."),
        ("POSTROOM_BATCH", "1.5", "POSTROOM_BATCH: '1.5' is not a whole number such as 32."),
        ("POSTROOM_BATCH", "0", "batch is 0; it must be a whole number from 1 to 10,000."),
        ("POSTROOM_ENABLED", "maybe", "POSTROOM_ENABLED: 'maybe' is not true or false."),
        ("POSTROOM_POLL", "soon", "POSTROOM_POLL: 'soon' is not a valid duration; write it like 500ms"),
        ("POSTROOM_BACKOFF", "5~3", "POSTROOM_BACKOFF: backoff jitter is 3.0; it must be between 0 and 0.9."),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(env={name: value})
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[relay]\nconcurency = 4", "relay.concurency is unknown; did you mean relay.concurrency?"),
        ("[rellay]\nbatch = 4", "rellay is unknown; "),
        ("zzz = 1", "zzz is unknown; there are inbox_retention, lanes, limits.body"),
        ("[relay]\nbatch = '32'", "relay.batch must be a whole number such as 32, not a value of type str."),
        ("[relay]\nbatch = true", "relay.batch must be a whole number such as 32, not a value of type bool."),
        ("[relay]\nenabled = 1", "relay.enabled must be true or false, not a value of type int."),
        ("[relay]\npoll = []", "relay.poll must be a duration such as 500ms"),
        ("[relay]\npoll = 'soon'", "relay.poll: 'soon' is not a valid duration"),
        ("[relay]\nbackoff = ['x']", "relay.backoff: 'x' is not a valid duration"),
        ("relay = 5", "relay must be a table, written [relay]."),
        ("store = 5", "store must be text, not a value of type int."),
    ],
)
def test_a_wrong_key_is_refused_with_file_and_key(toml: Path, text: str, sentence: str) -> None:
    toml.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_settings(env={}, toml=toml)
    assert str(refused.value).startswith(f"{toml}: {sentence}")


def test_a_file_that_is_missing_or_no_toml_is_refused_by_name(toml: Path) -> None:
    with pytest.raises(ConfigError, match=r"postroom.toml cannot be read: No such file"):
        load_settings(env={}, toml=toml)
    toml.write_bytes(b"store = \xff")
    with pytest.raises(ConfigError, match=r"postroom.toml is not TOML"):
        load_settings(env={}, toml=toml)


def test_an_unknown_override_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"settings: leases is unknown; did you mean lease\?"):
        load_settings(env={}, leases="5s")


def test_a_url_of_the_wrong_type_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="store: a bytes is not text") as refused:
        load_settings(env={}, store=b"postgresql://app:s3cr3t@db")
    assert "s3cr3t" not in str(refused.value)


# Secrets from files


@pytest.mark.requirement("B10")
def test_a_url_may_come_from_a_file(secret: Path) -> None:
    env = {"POSTROOM_STORE_FILE": str(secret), "POSTROOM_TO_FILE": str(secret)}
    assert load_settings(env=env).store == load_settings(env=env).to == "postgresql://app:s3cr3t@db/shop"


@pytest.mark.requirement("B10")
def test_a_secret_that_everybody_can_read_is_refused(secret: Path) -> None:
    secret.chmod(0o644)
    with pytest.raises(
        ConfigError, match=r"POSTROOM_STORE_FILE: .* can be read by everybody; run: chmod o-r"
    ) as refused:
        load_settings(env={"POSTROOM_STORE_FILE": str(secret)})
    assert "s3cr3t" not in str(refused.value)


def test_a_secret_behind_a_link_is_read(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret)
    assert load_settings(env={"POSTROOM_TO_FILE": str(link)}).to == "postgresql://app:s3cr3t@db/shop"


def test_a_secret_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigError, match=r"POSTROOM_TO_FILE: .* (is not a regular file|Is a directory)"):
            load_settings(env={"POSTROOM_TO_FILE": str(path)})


@pytest.mark.parametrize(("content", "sentence"), [(b" \n", "is empty"), (b"\xff", "is not text in UTF-8")])
def test_a_secret_that_says_nothing_is_refused(secret: Path, content: bytes, sentence: str) -> None:
    secret.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        load_settings(env={"POSTROOM_STORE_FILE": str(secret)})


def test_a_secret_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_settings(env={"POSTROOM_STORE_FILE": str(tmp_path / "nowhere")})


def test_a_url_and_its_file_at_once_are_refused(secret: Path) -> None:
    with pytest.raises(ConfigError, match="POSTROOM_STORE and POSTROOM_STORE_FILE are both set; keep one"):
        load_settings(env={"POSTROOM_STORE": "sqlite:///shop.db", "POSTROOM_STORE_FILE": str(secret)})
