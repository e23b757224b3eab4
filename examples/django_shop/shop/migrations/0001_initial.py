"""The tables of the shop and of the warehouse. Postroom's own come from its app."""

from typing import ClassVar

from django.db import migrations, models

ID = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar = [
        migrations.CreateModel("Order", [("id", ID), ("item", models.CharField(max_length=100))]),
        migrations.CreateModel(
            "Parcel",
            [("id", ID), ("order", models.CharField(max_length=200)), ("item", models.CharField(max_length=100))],
        ),
    ]
