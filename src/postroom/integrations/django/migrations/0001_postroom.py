"""The outbox, the inbox, and the model for the admin."""

from typing import ClassVar

from django.db import migrations, models

from postroom.integrations.django.conf import conf
from postroom.integrations.django.migrating import MakeTables


class Migration(migrations.Migration):
    """See `MakeTables`. The model is a view's: Django makes nothing for it."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        MakeTables(version=1),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[("seq", models.BigIntegerField(primary_key=True, serialize=False))],
            options={
                "managed": False,
                "db_table": conf().tables.name("messages"),
                "verbose_name": "message",
                "verbose_name_plural": "outbox",
            },
        ),
    ]
