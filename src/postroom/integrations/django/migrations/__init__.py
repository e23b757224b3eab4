"""One for each time that the tables changed, with the version of `postroom init` that it brings."""
