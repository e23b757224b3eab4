"""What every test may use: real servers, started once per run by `tests.servers`."""

pytest_plugins = ["tests.servers.plugin"]
