"""The page Prune: which heads can go."""
