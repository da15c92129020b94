"""Export of a model to ONNX, with the gradients that the library computes."""
