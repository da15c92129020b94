"""The page Layers: when does the model know its answer."""
