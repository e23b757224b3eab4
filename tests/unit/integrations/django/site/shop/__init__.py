"""A shop with orders."""
