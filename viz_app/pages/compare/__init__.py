"""The page Compare: what is different."""
