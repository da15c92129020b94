"""The script of a view as the browser gets it: what is sent in line cannot import a file beside it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_IMPORT = re.compile(r'^import (?:(?P<whole>\w+)|\{(?P<names>[\w\s,]*)\}) from "(?P<path>\.[^"]*)";$', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?P<default>default )?(?P<kind>(?:async )?function|const|class) (?P<name>\w+)", re.MULTILINE
)
_RENAMED = re.compile(r"(\w+) as (\w+)")
_COMMENT = re.compile(r"^[ \t]*//[^\n]*\n|/\*\*.*?\*/\s*", re.MULTILINE | re.DOTALL)


def joined(entry: Path, folder: Path | None = None) -> str:
    """A module with every module that it imports in front of it, as one that imports nothing.

    Each imported file becomes a constant, a function run once that returns what the file exports; so its other names
    are its own, as they are where modules can be loaded. What the browser does not read stays behind: lines that begin
    with //, what stands in /** */, and what a line is indented by, so no string of ours has a line break in it.
    folder: stands where the joined module is served, so that `import.meta.url` in a file below it is the address that
        the file has there; None: that of the entry.
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
        exports = [f"default: {name}" if default else name for default, _, name in _EXPORT.findall(source)]
        source = _EXPORT.sub(r"\g<kind> \g<name>", source)
        names[file] = constant_name = f"${file.parent.name}_{file.stem}"
        parts.append(f"const {constant_name} = (() => {{\n{source}return {{ {', '.join(exports)} }};\n}})();\n")
        return constant_name

    def inner(file: Path) -> str:
        """A file without comments and indents, its imports read from the constants in front."""

        def import_constant(match: re.Match[str]) -> str:
            names_imported = (
                f"default: {match['whole']}"
                if match["whole"]
                else _RENAMED.sub(r"\1: \2", " ".join(match["names"].split()).rstrip(","))
            )
            return f"const {{ {names_imported} }} = {constant((file.parent / match['path']).resolve())};"

        source = _COMMENT.sub("", file.read_text("utf-8"))
        if unsupported := re.search(
            r"^(?:import|export)\b.*|\bimport\(.*", _EXPORT.sub("", _IMPORT.sub("", source)), re.MULTILINE
        ):
            raise ValueError(
                f"{file.name} has {unsupported[0]!r}: imports and exports are joined in the forms of the files here"
            )
        if "import.meta.url" in source:
            place = Path(os.path.relpath(file, root)).as_posix()
            source = source.replace("import.meta.url", f'new URL("{place}", import.meta.url)')
        return re.sub(r"\n\s+", "\n", _IMPORT.sub(import_constant, source)).lstrip()

    root = (folder or entry.parent).resolve()
    last = inner(entry.resolve())
    return "".join(parts) + last
