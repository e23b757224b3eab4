"""Postroom as an app of Django's: `INSTALLED_APPS = [..., "postroom.integrations.django"]`.

- `manage.py migrate` makes the tables, on SQLite, PostgreSQL, MariaDB and MySQL: the ones that `postroom init` makes.
- `put` and `put_many` write in the `atomic` block that is open, and wake the relay once it has committed.
- `manage.py postroom …` is the whole command line, on the database of the settings.
- `manage.py postroom consume` lets handlers use the ORM: their effects and the inbox's row are one commit.
- The admin shows the outbox.
"""

from postroom.integrations.django.writing import fresh_connections, put, put_many

__all__ = ["fresh_connections", "put", "put_many"]
