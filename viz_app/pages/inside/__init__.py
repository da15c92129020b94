"""The page Inside BERT: what happens to my sentence."""
