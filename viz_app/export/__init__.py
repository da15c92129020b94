"""What is on a page as a file: numbers, a picture, a page of its own, and the Python that makes it again."""

PICTURES = ("png", "svg", "pdf")
FILE_KINDS = (*PICTURES, "html", "npz", "csv", "py")
EFFECT_KINDS = ("csv", "npz", "json")  # of patches
