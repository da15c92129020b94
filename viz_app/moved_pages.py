"""Pages whose path has changed: old addresses and lessons open the page at its new path."""

MOVED_PAGES = {"dossier": "profiles"}  # old path -> path
