"""Pages whose path has changed: addresses and lessons that name the old path open the page at its new one."""

MOVED_PAGES = {"dossier": "profiles"}  # old path -> path
