"""The script of a view as the browser gets it: what is sent in line cannot import a file beside it."""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import (?:(?P<whole>\w+)|\{(?P<names>[\w\s,]*)\}) from "(?P<path>\.[^"]*)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?P<default>default )?(?P<kind>function|const) (?P<name>\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*//[^\n]*\n|/\*\*.*?\*/\s*", re.MULTILINE | re.DOTALL)


def joined(entry: Path) -> str:
    """A module with every module that it imports in front of it, as one that imports nothing.

    Each imported file becomes a constant, a function run once that returns what the file exports; so its other names
    are its own, as they are where modules can be loaded. What the browser does not read stays behind: lines that begin
    with //, what stands in /** */, and what a line is indented by, so no string of ours has a line break in it.
    Raises ValueError for an import or export in another form than the files here have, or files that import each other.
    """
    parts: list[str] = []
    names: dict[Path, str | None] = {}

    def constant(file: Path) -> str:
        """The name under which a file's exports stand in front, put there when it is first asked for."""
        if file in names:
            if (name := names[file]) is None:
                raise ValueError(f"{file.name} imports itself, through other files or not")
            return name
        names[file] = None
        source = inner(file)
        said = [f"default: {name}" if default else name for default, _, name in _EXPORT.findall(source)]
        source = _EXPORT.sub(r"\g<kind> \g<name>", source)
        names[file] = made = f"${file.parent.name}_{file.stem}"
        parts.append(f"const {made} = (() => {{\n{source}return {{ {', '.join(said)} }};\n}})();\n")
        return made

    def inner(file: Path) -> str:
        """A file without comments and indents, its imports read from the constants in front."""

        def taken(found: re.Match[str]) -> str:
            wanted = f"default: {found['whole']}" if found["whole"] else " ".join(found["names"].split()).rstrip(",")
            return f"const {{ {wanted} }} = {constant((file.parent / found['path']).resolve())};"

        source = _COMMENT.sub("", file.read_text("utf-8"))
        if other := re.search(
            r"^(?:import|export)\b.*|\bimport\(.*", _EXPORT.sub("", _IMPORT.sub("", source)), re.MULTILINE
        ):
            raise ValueError(
                f"{file.name} has {other[0]!r}: imports and exports are joined in the forms of the files here"
            )
        return re.sub(r"\n\s+", "\n", _IMPORT.sub(taken, source)).lstrip()

    last = inner(entry.resolve())
    return "".join(parts) + last
