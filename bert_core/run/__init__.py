"""Analyses that run a model: each function takes a loaded model and texts, and returns arrays or a record."""

MAX_REFERENCES = 64  # reference texts that the app and the commands accept for mean and resample ablation
