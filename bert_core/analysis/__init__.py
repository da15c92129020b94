"""Analyses that need only arrays: they compute results from attention maps, gradients and hidden states, not models."""
