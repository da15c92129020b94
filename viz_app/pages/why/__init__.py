"""The page Why: which words led to this prediction."""
