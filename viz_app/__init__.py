"""Headlight's app: the page, and the `headlight` command."""
