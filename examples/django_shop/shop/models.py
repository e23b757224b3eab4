"""The shop has orders; the warehouse has parcels, and knows of orders by messages alone."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)

    def __str__(self) -> str:
        return f"{self.item} (order {self.pk})"


class Parcel(models.Model):
    order = models.CharField(max_length=200)
    item = models.CharField(max_length=100)

    def __str__(self) -> str:
        return f"{self.item} for order {self.order}"
