"""How fast Postroom is, as ratios to doing without it: `python -m bench`."""
