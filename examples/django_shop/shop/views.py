"""The shop: an order and the message about it are one commit."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from postroom import Message
from postroom.integrations.django import put
from shop.models import Order

STOCK = {"lamp", "chair"}


class SoldOut(Exception):
    """It is noticed late, as such things are."""


@require_POST
def place(request: HttpRequest) -> JsonResponse:
    try:
        with transaction.atomic():
            order = Order.objects.create(item=request.POST["item"])
            put(Message("order.placed", key=str(order.pk), data={"item": order.item}))
            if order.item not in STOCK:
                raise SoldOut  # the order was never there, and nobody will hear of it
    except SoldOut:
        return JsonResponse({"error": "sold out"}, status=409)
    return JsonResponse({"order": order.pk}, status=201)
