"""The outbox in Django's admin: to look at, and to requeue what is dead."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from django.contrib import admin, messages

from postroom.contracts.ops import Query
from postroom.errors import PostroomError
from postroom.integrations.django.conf import conf, store_url
from postroom.integrations.django.models import OutboxMessage
from postroom.ops.repair import Done, Refusal, apply, plan_requeue
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
        ids = [UUID(str(id_)) for id_ in queryset.values_list("id", flat=True)]
        try:
            done = asyncio.run(_requeue(store_url(queryset.db), ids))
        except PostroomError as exc:
            self.message_user(request, str(exc), messages.ERROR)
            return
        if isinstance(done, Refusal):
            why = f"{done.why}: `manage.py postroom requeue --force` if that is right."
            self.message_user(request, why, messages.ERROR)
        else:
            self.message_user(request, f"Requeued {count(done.count, 'message')} of {len(ids)}.", messages.SUCCESS)


async def _requeue(url: str, ids: list[UUID]) -> Done | Refusal:
    settings = conf()
    remembered = settings.inbox_retention
    async with open_store(url, tables=settings.tables) as store:
        plan = await plan_requeue(store, Query(ids=tuple(ids)), remembered=remembered)
        return plan if isinstance(plan, Refusal) else await apply(store, plan)
