"""The page Predict: what belongs in the gap, and does B follow A."""
