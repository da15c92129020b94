"""Scripts that create data and model cards of the bundled models; they are not part of the wheel."""
