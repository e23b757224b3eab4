"""Deliveries by HTTP: CloudEvents in binary mode, signed by Standard Webhooks, answered message by message."""

from postroom.errors import MissingDependency

try:
    import aiohttp  # noqa: F401 - asked for here, so that whoever lacks it reads what to install
except ModuleNotFoundError as exc:
    raise MissingDependency(
        "Deliveries by HTTP need aiohttp, which is not installed: run `pip install 'postroom[http]'`.", extra="http"
    ) from exc

from postroom.transports.http.publisher import HttpPublisher

__all__ = ["HttpPublisher"]
