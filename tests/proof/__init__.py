"""The long tests: storms, kills and random walks. `make test` has a sample of them, `make proof` lets them last."""
