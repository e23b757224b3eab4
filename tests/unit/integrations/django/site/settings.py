"""A project of Django's, as small as it can be. The databases come from the test."""

import json
import os

try:
    import MySQLdb  # noqa: F401 - only to see that it is there
except ImportError:
    import pymysql

    pymysql.install_as_MySQLdb()  # Django knows no other driver by name; this is PyMySQL's way in

SECRET_KEY = "test"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "postroom.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = json.loads(os.environ["TEST_DATABASES"])
DATABASE_ROUTERS = json.loads(os.environ.get("TEST_ROUTERS", "[]"))
POSTROOM = json.loads(os.environ.get("TEST_POSTROOM", "{}"))
