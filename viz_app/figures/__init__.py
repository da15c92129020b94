"""Arrays and labels in, plotly figures out; one file for each kind of drawing, one colour rule in `style`."""
