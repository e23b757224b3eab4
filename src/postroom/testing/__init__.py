"""What Postroom's own tests stand on, shipped: the contract suites, and stores that break one promise each."""
