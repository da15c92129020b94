"""Every question that needs the model, each with a record as its answer."""

MOST_REFERENCES = 64  # texts that the page and the commands take to stand in for a head
