"""Producing weights: pre-training, fine-tuning, captioning, and the measures of what came out."""
