"""One thin file a page: what the reader chose, one analysis, one picture, two sentences on reading it."""
