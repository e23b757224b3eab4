"""What Postroom's own tests stand on, shipped: the contract suites, stores that break one promise each, and the judge of a
run (`postroom.testing.journal`)."""
