"""The outbox in Django's admin: to look at, and to requeue what is dead."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.utils import timezone

from postroom.clock import utcnow
from postroom.contracts.ops import Query
from postroom.durations import format_duration
from postroom.errors import PostroomError
from postroom.inbox.inbox import RETENTION_DEFAULT
from postroom.integrations.django.conf import conf, store_url
from postroom.integrations.django.models import OutboxMessage
from postroom.ops.words import count
from postroom.stores import open_store


@admin.register(OutboxMessage)
class OutboxMessageAdmin(admin.ModelAdmin):
    """Nothing is added, changed or deleted here. Who may change messages may requeue them."""

    list_display = ("seq", "type", "key", "status", "attempts", "last_error_code", "created_at", "id")
    list_filter = ("status", ("type", admin.AllValuesFieldListFilter))
    search_fields = ("=id", "=key")
    search_help_text = "The whole id, or the whole key."
    ordering = ("-seq",)
    show_full_result_count = False
    actions = ("requeue",)

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 - Django's signature
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 - the same
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 - the same
        return False

    def has_requeue_permission(self, request: Any) -> bool:
        """May this person let messages go again?"""
        return bool(request.user.has_perm("postroom.change_outboxmessage"))

    @admin.action(description="Requeue the dead and failed", permissions=["requeue"])
    def requeue(self, request: Any, queryset: Any) -> None:
        """Put them back to pending, as `manage.py postroom requeue` does; not what inboxes have forgotten meanwhile."""
        chosen = list(queryset.values_list("id", "created_at"))
        if any(_is_forgotten(created_at) for _, created_at in chosen):
            remembered = format_duration(RETENTION_DEFAULT)
            why = f"Some are older than inboxes remember ({remembered}): `manage.py postroom requeue --force` if that is right."
            self.message_user(request, why, messages.ERROR)
            return
        ids = [UUID(str(id_)) for id_, _ in chosen]
        try:
            done = asyncio.run(_requeue(store_url(queryset.db), ids))
        except PostroomError as exc:
            self.message_user(request, str(exc), messages.ERROR)
        else:
            self.message_user(request, f"Requeued {count(done, 'message')} of {len(ids)}.", messages.SUCCESS)


def _is_forgotten(created_at: datetime) -> bool:
    """Could an inbox that handled it then handle it again?"""
    moment = timezone.make_aware(created_at) if timezone.is_naive(created_at) else created_at
    return utcnow() - moment > RETENTION_DEFAULT


async def _requeue(url: str, ids: list[UUID]) -> int:
    async with open_store(url, tables=conf().tables) as store:
        return await store.ops.requeue(Query(ids=tuple(ids)))
