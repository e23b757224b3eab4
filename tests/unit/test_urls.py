from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import ConfigError
from postroom.urls import redact, split_scheme

# Z occurs in no word around the secret: a single one in the output is a leak.
nasty = st.text("Z@:/%", min_size=1).filter(lambda text: "Z" in text)
nastier = st.text("Z@:/%?#&=; '\\\n[],+", min_size=1).filter(lambda text: "Z" in text)
schemes = st.sampled_from(
    [
        "postgresql",
        "postgresql+psycopg",
        "mysql",
        "mongodb+srv",
        "kafka",
        "amqp",
        "nats",
        "redis",
        "https",
        "x",
    ]
)
parameters = st.sampled_from(
    [
        "password",
        "sslpassword",
        "token",
        "access_token",
        "sasl.password",
        "API_KEY",
        "aws_secret_access_key",
        "pwd",
    ]
)


@given(schemes, nastier)
def test_a_raw_password_never_leaks(scheme: str, secret: str) -> None:
    shown = redact(f"{scheme}://app:{secret}@db:5432/shop?sslmode=require")
    mode = "***" if scheme == "https" else "require"
    assert shown == f"{scheme}://app:***@db:5432/shop?sslmode={mode}"


@given(schemes, nasty)
def test_a_raw_password_after_a_user_with_an_at_sign_never_leaks(scheme: str, secret: str) -> None:
    assert redact(f"{scheme}://me@corp:{secret}@db/shop") == f"{scheme}://me@corp:***@db/shop"


@given(schemes, nasty)
def test_a_password_without_a_user_never_leaks(scheme: str, secret: str) -> None:
    assert redact(f"{scheme}://:{secret}@db/shop") == f"{scheme}://:***@db/shop"


@given(schemes, st.text("Z@:/%?#", min_size=1).filter(lambda text: "Z" in text), parameters)
def test_a_secret_parameter_never_leaks(scheme: str, secret: str, name: str) -> None:
    shown = redact(f"{scheme}://app:{secret}@db/shop?a=b&{name}={secret}&c=d")
    b, d = ("***", "***") if scheme == "https" else ("b", "d")
    assert shown == f"{scheme}://app:***@db/shop?a={b}&{name}=***&c={d}"


@given(nasty, parameters.filter(lambda name: "." not in name))
def test_a_secret_in_a_dsn_never_leaks(secret: str, name: str) -> None:
    assert redact(f"host=db {name} = {secret} dbname=shop") == f"host=db {name} = *** dbname=shop"


@given(nastier)
def test_a_quoted_secret_in_a_dsn_never_leaks(secret: str) -> None:
    quoted = secret.replace("\\", "\\\\").replace("'", "\\'")
    assert redact(f"host=db password='{quoted}' dbname=shop") == "host=db password=*** dbname=shop"


@given(nastier.filter(lambda text: "=" not in text))
def test_a_badly_quoted_secret_in_a_dsn_never_leaks(secret: str) -> None:
    assert "Z" not in redact(f"host=db password={secret}' dbname=shop")


@given(nasty)
def test_a_url_inside_a_dsn_never_leaks(secret: str) -> None:
    assert "Z" not in redact(f"dbname=postgresql://app:{secret}@db/shop port=5432")
    assert "Z" not in redact(f"dbname=postgresql://app:{secret}@db/shop oops")


@given(schemes, st.text("Z/%", min_size=1).filter(lambda text: "Z" in text))
def test_a_password_whose_host_was_forgotten_never_leaks(scheme: str, secret: str) -> None:
    assert "Z" not in redact(f"{scheme}://app:Z{secret}")


@given(st.text())
def test_any_text_is_redacted_without_an_error_and_once_is_enough(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///shop.db",
        "sqlite:////home/me@work/a:b.db",
        "local://shop.handlers:deliver",
        "postgresql:///shop?host=/tmp",
        "postgresql://app@db:5432/shop",
        "mongodb://a:27017,b:27018/shop?authSource=admin",
        "kafka://a:9092,b:9092/orders",
        "https://[::1]:8443/hook",
        "https://shop.example/@team/hook",
        "host=db port=5432 user=app dbname=shop",
        "db:5432",
        "",
    ],
)
def test_what_holds_no_secret_is_shown_as_it_is(url: str) -> None:
    assert redact(url) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://s3cr3t@broker:4222", "nats://***@broker:4222"),
        ("https://hooks.example/services/T0AB/B0CD/s3cr3tS3CR3T", "https://hooks.example/services/***/***/***"),
        ("https://api.example/bot12:AbC-dEf/send", "https://api.example/***/send"),
        ("https://shop.example/v1/order-events?s3cr3t", "https://shop.example/v1/order-events?***"),
        ("https://shop.example/hooks?who=me&key=s3cr3t#s3", "https://shop.example/hooks?who=***&key=***#***"),
        ("https://shop.example/abcdefghijklmnopqrst/", "https://shop.example/***/"),
        ("https://s3cr3t@shop.example/hook", "https://***@shop.example/hook"),
        ("app:s3cr3t@db/shop", "app:***@db/shop"),
        ("postgresql:app:s3cr3t@db/shop", "postgresql:app:***@db/shop"),
        ("sqlite:///shop.db?password=s3cr3t", "sqlite:///shop.db?password=***"),
        ("options='token=' password='s3cr3t'", "options='token=' password=***"),
    ],
)
def test_a_secret_in_an_odd_place_is_hidden(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_a_url_splits_into_its_scheme_and_the_rest() -> None:
    assert split_scheme("postgresql+psycopg://db/shop") == ("postgresql+psycopg", "db/shop")
    assert split_scheme("SQLITE:///shop.db") == ("sqlite", "/shop.db")


@pytest.mark.parametrize("text", ["", "shop.db", "://x", "postgresql:app:s3cr3t@db", "host=db password=s3cr3t"])
def test_what_has_no_scheme_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ConfigError, match="must start with a scheme") as refused:
        split_scheme(text)
    assert "s3cr3t" not in str(refused.value)
