"""The page Attention: who looks at whom."""
