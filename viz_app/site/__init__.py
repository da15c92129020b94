"""The browser edition: a model that runs in a page, without a server."""
