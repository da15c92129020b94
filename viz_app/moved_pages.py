"""Pages and views whose address has changed: old addresses and lessons open them at their new ones."""

from collections.abc import Mapping

HOME, FIRST_VIEW = "start", "predict"  # paths that an address without a page opens: without and with a view
MOVED_PAGES = {"dossier": "profiles"}  # old path -> path
# Views that have become pages: old path, names of the parameter of the view, and its value -> path.
MOVED_VIEWS = {
    ("layers", ("layers_view", "through"), "elsewhere"): "search",
    ("score", ("compared",), "alike"): "similarity",
}


def moved_address(path: str, params: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return path and parameters of an address at which its page is now; those of other addresses are unchanged."""
    for (old_path, names, value), new_path in MOVED_VIEWS.items():
        if path == old_path and value in (params.get(name) for name in names):
            return new_path, {name: params[name] for name in params if name not in names}
    return MOVED_PAGES.get(path, path), dict(params)
