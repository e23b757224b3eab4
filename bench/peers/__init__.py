"""Other libraries that drain a PostgreSQL table of work, beside ours: each with the settings that suit it best here."""
