"""Where orders are placed, and where a person looks at the outbox."""

from django.contrib import admin
from django.urls import path

from shop.views import place

urlpatterns = [path("orders/", place), path("admin/", admin.site.urls)]
