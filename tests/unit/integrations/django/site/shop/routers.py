class OnlyPost:
    """Postroom's tables are in the database `post`, and nothing else is."""

    def allow_migrate(self, db, app_label, **hints):
        return (app_label == "postroom") == (db == "post")
