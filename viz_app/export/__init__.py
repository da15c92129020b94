"""Files of what a page shows: numbers, figures, an HTML page, and the Python code that reproduces it."""

PICTURES = ("png", "svg", "pdf")
FILE_KINDS = (*PICTURES, "html", "npz", "csv", "py")
EFFECT_KINDS = DIRECT_KINDS = ("csv", "npz", "json", *PICTURES)  # of patches, and of direct contributions
LENS_KINDS = ("csv", *PICTURES)
