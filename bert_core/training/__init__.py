"""Training: pre-training, fine-tuning, the captioner and the tuned lens, and the evaluation of their weights."""
