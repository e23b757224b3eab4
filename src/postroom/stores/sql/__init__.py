"""What the SQL databases share: statements from files, INSERTs, migrations, times."""
