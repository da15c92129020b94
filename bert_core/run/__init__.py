"""Every question that needs the model, each with a record as its answer."""

MAX_REFERENCES = 64  # texts that the page and the commands take to stand in for a head
