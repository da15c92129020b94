"""What is on a page as a file: numbers, a picture, a page of its own, and the Python that makes it again."""

from viz_app.export.tables import npz, tidy_csv

__all__ = ["npz", "tidy_csv"]
