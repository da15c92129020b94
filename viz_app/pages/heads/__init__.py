"""The page Heads: which matter, and what if they were gone."""
