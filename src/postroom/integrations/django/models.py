"""The outbox as a person queries it: the view `outbox_messages`, as a model that nobody can write through."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models

from postroom.contracts.ops import OPEN, SETTLED
from postroom.integrations.django.conf import conf


class OutboxMessage(models.Model):
    """One message, with what became of it. To write one there is `put`; to move one, `manage.py postroom`."""

    seq = models.BigIntegerField(primary_key=True)
    id = models.CharField(max_length=36)
    type = models.TextField()
    key = models.TextField(null=True)
    aggregate = models.TextField(null=True)
    topic = models.TextField(null=True)
    status = models.CharField(max_length=9, choices=[(status, status) for status in (*OPEN, *SETTLED)])
    attempts = models.IntegerField()
    last_error_code = models.TextField(null=True)
    last_error = models.TextField(null=True)
    payload = models.TextField(null=True)
    content_type = models.TextField()
    headers = models.TextField(null=True)
    correlation_id = models.TextField(null=True)
    causation_id = models.TextField(null=True)
    idempotency_key = models.TextField(null=True)
    lane = models.IntegerField(null=True)
    owner = models.TextField(null=True)
    parked = models.BooleanField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "postroom"
        managed = False
        db_table = conf().tables.name("messages")
        verbose_name = "message"
        verbose_name_plural = "outbox"

    def __str__(self) -> str:
        return f"{self.type} {self.key or self.id}"

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a relay may have it in hand."""
        raise TypeError("A message cannot be changed: use put for a new one, and `manage.py postroom` to move one.")

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: that would be to lose it."""
        raise TypeError("A message cannot be deleted: `manage.py postroom discard` gives one up, and says so.")
