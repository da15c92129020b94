"""Arrays and labels in, plotly figures out: each figure is data and a call of `primitives`; colours are in `style`."""
