"""The tests of Postroom; a package so that `tests.servers` can be imported and run."""
