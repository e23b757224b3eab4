"""The store's URL is where Django connects."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.integrations.django.projects import Project

POSTGRES, MYSQL = "django.db.backends.postgresql", "django.db.backends.mysql"
SQLITE = "django.db.backends.sqlite3"
URLS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": (
        {"ENGINE": POSTGRES, "NAME": "shop", "USER": "app", "HOST": "db", "PORT": 5433},
        "postgresql://app@db:5433/shop",
    ),
    "secret": (
        {"ENGINE": POSTGRES, "NAME": "my shop", "USER": "a@b", "PASSWORD": "p@ss/w:rd%", "HOST": "db"},
        "postgresql://a%40b:p%40ss%2Fw%3Ard%25@db/my%20shop",
    ),
    "socket": (
        {"ENGINE": POSTGRES, "NAME": "shop", "HOST": "/run/postgres", "PORT": "5432"},
        "postgresql:///shop?host=%2Frun%2Fpostgres&port=5432",
    ),
    "options": (
        {
            "ENGINE": POSTGRES,
            "NAME": "shop",
            "HOST": "db",
            "OPTIONS": {"sslmode": "require", "pool": True, "options": "-c search_path=shop", "assume_role": "owner"},
        },
        "postgresql://db/shop?sslmode=require&options=-c%20search_path%3Dshop%20-c%20role%3Downer",
    ),
    "service": ({"ENGINE": POSTGRES, "NAME": "", "OPTIONS": {"service": "shop"}}, "postgresql:///?service=shop"),
    "geo": ({"ENGINE": POSTGRES, "NAME": None, "HOST": "::1"}, "postgresql:///postgres?host=%3A%3A1"),
    "maria": (
        {"ENGINE": MYSQL, "NAME": "shop", "USER": "app", "PASSWORD": "p@ss", "HOST": "db", "PORT": "3307"},
        "mysql://app:p%40ss@db:3307/shop",
    ),
    "maria_socket": (
        {"ENGINE": MYSQL, "NAME": "shop", "USER": "app", "HOST": "/run/m.sock"},
        "mysql://app@/shop?unix_socket=%2Frun%2Fm.sock",
    ),
    "maria_tls": (
        {"ENGINE": MYSQL, "NAME": "shop", "HOST": "db", "OPTIONS": {"ssl": {"ca": "/ca.pem"}, "charset": "utf8mb4"}},
        "mysql://db/shop?ssl_ca=%2Fca.pem",
    ),
    "maria_mode": (
        {"ENGINE": MYSQL, "NAME": "shop", "HOST": "db", "OPTIONS": {"ssl_mode": "REQUIRED"}},
        "mysql://db/shop?ssl=true",
    ),
    "default": ({"ENGINE": SQLITE, "NAME": "/var/my shop.db"}, "sqlite:////var/my shop.db"),
    "beside": ({"ENGINE": SQLITE, "NAME": "shop.db"}, "sqlite:///shop.db"),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({"ENGINE": SQLITE, "NAME": ":memory:"}, "give NAME the path of a file"),
    "cnf": (
        {"ENGINE": MYSQL, "NAME": "", "OPTIONS": {"read_default_file": "/my.cnf"}},
        "write HOST, USER, PASSWORD and NAME",
    ),
    "cert": ({"ENGINE": MYSQL, "NAME": "a", "OPTIONS": {"ssl": {"cert": "/c", "key": "/k"}}}, "it takes ca alone"),
    "dummy": ({"ENGINE": "django.db.backends.dummy"}, "is unknown; Postroom works on SQLite, PostgreSQL"),
}
CODE = """if True:
    import json
    from django.db import connections
    from postroom import ConfigError
    from postroom.integrations.django.conf import store_url
    said = {}
    for alias in connections.settings:
        try:
            said[alias] = store_url(alias)
        except ConfigError as exc:
            said[alias] = str(exc)
    print(json.dumps(said))
"""


def test_every_way_to_name_a_database_has_its_url_or_a_sentence() -> None:
    databases = {alias: settings for alias, (settings, _) in (URLS | REFUSED).items()}
    said = json.loads(Project(databases).python(CODE))
    assert {alias: said[alias] for alias in URLS} == {alias: url for alias, (_, url) in URLS.items()}
    for alias, (_, why) in REFUSED.items():
        assert why in said[alias]
