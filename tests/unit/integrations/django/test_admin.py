"""The outbox in Django's admin."""

from __future__ import annotations

import json

from tests.unit.integrations.django.projects import Project
from tests.unit.stores.homes import Home

LOOK = """if True:
    import json, re
    from django.contrib.auth.models import Permission, User
    from django.test import Client
    from postroom.integrations.django.models import OutboxMessage
    boss = Client(); boss.force_login(User.objects.create_superuser("boss"))
    reader_user = User.objects.create_user("reader", is_staff=True)
    reader_user.user_permissions.add(Permission.objects.get(codename="view_outboxmessage"))
    reader = Client(); reader.force_login(reader_user)
    nobody = Client(); nobody.force_login(User.objects.create_user("nobody", is_staff=True))
    LIST = "/admin/postroom/outboxmessage/"
    def keys(query="", client=boss):
        page = client.get(LIST + query)
        if page.status_code != 200:
            return page.status_code
        return re.findall(r'field-key[^>]*>([^<]*)<', page.content.decode())
    def requeue(client, **which):
        chosen = OutboxMessage.objects.filter(**which).values_list("seq", flat=True)
        page = client.post(LIST, {"action": "requeue", "_selected_action": list(chosen)}, follow=True).content.decode()
        return re.findall('class="(success|error)">(.*?)<', page)
    one = OutboxMessage.objects.get(key="one")
    page = boss.get(f"{LIST}{one.pk}/change/")
"""


def test_a_person_looks_filters_searches_and_requeues_but_changes_nothing(home: Home) -> None:
    project = Project.on(home.url)
    project.done("migrate", "-v0")
    project.python(
        """if True:
        from django.db import transaction
        from postroom import Message
        from postroom.integrations.django import put
        from shop.models import Order
        with transaction.atomic():
            for type_, key in (("order.placed", "one"), ("order.placed", "two"), ("order.sent", "three")):
                put(Message(type_, key=key, data="<secret>"))
            Order.objects.create(name="local two")  # the relay's function will not make another
        """
    )
    ended = project.manage("postroom", "relay", "--to", "local://shop.handlers:take", "--drain", "--max-attempts", "1")
    assert ended.returncode == 3

    said = json.loads(
        project.python(
            LOOK
            + """
    print(json.dumps({
        "all": keys(), "dead": keys("?status=dead"), "sent": keys("?type=order.sent"), "one": keys("?q=one"),
        "by id": keys(f"?q={one.id}"), "nobody": keys(client=nobody), "reader": keys(client=reader),
        "shown": "&lt;secret&gt;" in page.content.decode(), "inputs": "_save" in page.content.decode(),
        "add": boss.get(LIST + "add/").status_code,
        "change": boss.post(f"{LIST}{one.pk}/change/", {"type": "x"}).status_code,
        "delete": boss.post(f"{LIST}{one.pk}/delete/", {"post": "yes"}).status_code,
        "not mine": requeue(reader, key="two"), "requeued": requeue(boss, key="two"), "published": requeue(boss, key="one"),
        "after": list(OutboxMessage.objects.order_by("seq").values_list("status", flat=True)),
    }))"""
        )
    )
    assert said == {
        "all": ["three", "two", "one"],
        "dead": ["two"],
        "sent": ["three"],
        "one": ["one"],
        "by id": ["one"],
        "nobody": 403,
        "reader": ["three", "two", "one"],
        "shown": True,
        "inputs": False,
        "add": 403,
        "change": 403,
        "delete": 403,
        "not mine": [],
        "requeued": [["success", "Requeued 1 message of 1."]],
        "published": [["success", "Requeued 0 messages of 1."]],
        "after": ["published", "pending", "published"],
    }
