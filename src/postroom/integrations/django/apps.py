"""What Django calls the app."""

from django.apps import AppConfig


class PostroomConfig(AppConfig):
    """Its label is `postroom`: as in `manage.py migrate postroom`."""

    name = "postroom.integrations.django"
    label = "postroom"
    verbose_name = "Postroom"
