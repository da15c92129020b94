"""Our own browser views, as Streamlit components: each folder holds its Python, one script and one style sheet."""

from pathlib import Path

# The tooltip of every view; its style stands before the view's own.
TIP = '<div class="tip" role="tooltip" popover="manual"></div>'
TIP_STYLE = (Path(__file__).parent / "tip.css").read_text("utf-8")
# Of what is hatched in the views with maps.
HATCHING_STYLE = (Path(__file__).parent / "hatching.css").read_text("utf-8")
