"""Questions that need only arrays: attention maps, gradients and states in, answers out."""
