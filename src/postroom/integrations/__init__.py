"""Postroom inside what people already use: each module needs its own framework, and is imported by name.

- `asgi`: a relay, and receptions, that live as long as a FastAPI or Starlette application does.
- `django`: an app for `INSTALLED_APPS`, with migrations and `manage.py postroom`.
- `sqlalchemy`: the tables in your own metadata; `alembic`: in your own migrations.
"""
