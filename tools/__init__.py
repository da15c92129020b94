"""Scripts that make the data and the model cards of the bundled models; they are no part of the wheel."""
