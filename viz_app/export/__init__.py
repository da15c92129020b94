"""Files of what a page shows: numbers, figures, an HTML page, and the Python code that reproduces it."""

PICTURES = ("png", "svg", "pdf")
FILE_KINDS = (*PICTURES, "html", "npz", "csv", "py")
EFFECT_KINDS = ("csv", "npz", "json")  # of patches
DIRECT_KINDS = (*EFFECT_KINDS, *PICTURES)  # of direct contributions
