"""What every page stands in."""
