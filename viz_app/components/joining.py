"""The script of a view as the browser gets it: what is sent in line cannot import a file beside it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

_IMPORT = re.compile(r'^import (?:(?P<whole>\w+)|\{(?P<names>[\w\s,]*)\}) from "(?P<path>\.[^"]*)";$', re.MULTILINE)
_LATER_IMPORT = re.compile(r'\bimport\("(?P<path>\.[^"]*)"\)')
_EXPORT = re.compile(
    r"^export (?P<default>default )?(?P<kind>(?:async )?function|const|class) (?P<name>\w+)", re.MULTILINE
)
_RENAMED = re.compile(r"(\w+) as (\w+)")
_COMMENT = re.compile(r"^[ \t]*//[^\n]*\n|/\*\*.*?\*/\s*", re.MULTILINE | re.DOTALL)
SHARED = "shared"  # name of the script with what several others import


def joined(entry: Path) -> str:
    """A module with every module that it imports in front of it, as one that imports nothing.

    Each imported file becomes a constant, a function run once that returns what the file exports; so its other names
    are its own, as they are where modules can be loaded. What the browser does not read stays behind: lines that begin
    with //, what stands in /** */, and what a line is indented by, so no string of ours has a line break in it.
    Raises ValueError for an import or export in another form than the files here have, or files that import each other.
    """
    *imported, main = _in_order(entry.resolve(), {})
    if later := next((module for module in (*imported, main) if module.later_imports), None):
        raise ValueError(f"{later.file.name} imports {later.later_imports[0].name} later, which one script cannot")
    return "".join(module.constant() for module in imported) + main.body()


def joined_scripts(entry: Path, folder: Path, place: str) -> dict[str, str]:
    """Several scripts, by their paths: a module joined as by `joined`, and those that it imports later.

    A module that is imported later, by `import("…")` in the entry or in what it imports, is a script of its own in the
    folder `place`. It imports what the first script has from there, so the entry must not wait for it at its top level,
    and what several others need from a shared script.
    The first script is beside that folder, and `import.meta.url` in a file is the address that it has below `folder`.
    """
    modules: dict[Path, _Module] = {}
    *imported, main = first = _in_order(entry.resolve(), modules)
    later = [
        _in_order(file, modules) for file in dict.fromkeys(file for module in first for file in module.later_imports)
    ]
    added = [[module for module in group if module not in first] for group in later]
    counts = Counter(module for group in added for module in group)
    shared = [module for module in modules.values() if counts[module] > 1]
    for group in later:
        if group[-1] in (*first, *shared):
            raise ValueError(f"{group[-1].file.name} is imported later, and also by another file")
    if nested := next((module for module in counts if module.later_imports), None):
        raise ValueError(f"{nested.file.name} is imported later, and imports {nested.later_imports[0].name} later")

    def rewritten(module: _Module, source: str) -> str:
        address = f'new URL("{Path(os.path.relpath(module.file, folder)).as_posix()}", import.meta.url)'
        source = _LATER_IMPORT.sub(lambda match: f'import("./{place}/{Path(match["path"]).name}")', source)
        return source.replace("import.meta.url", address)

    def constants(group: Iterable[_Module]) -> str:
        return "".join(module.constant(rewritten) for module in group)

    def imports(group: Iterable[_Module], sources: list[_Module], path: str) -> str:
        files = {file for module in group for file in module.imports}
        names = [module.name for module in sources if module.file in files]
        return f'import {{ {", ".join(names)} }} from "{path}";\n' if names else ""

    def exports(group: Iterable[_Module]) -> str:
        return f"export {{ {', '.join(module.name for module in group)} }};\n"

    first_path, shared_path = f"../{entry.name}", f"./{SHARED}.js"
    scripts = {entry.name: constants(imported) + main.body(rewritten) + exports(imported)}
    if shared:
        scripts[f"{place}/{SHARED}.js"] = imports(shared, imported, first_path) + constants(shared) + exports(shared)
    for group in added:
        *before, last = modules_of_script = [module for module in group if module not in shared]
        header = imports(modules_of_script, imported, first_path) + imports(modules_of_script, shared, shared_path)
        scripts[f"{place}/{last.file.name}"] = header + constants(before) + last.body(rewritten)
    return scripts


def _name(file: Path) -> str:
    """The name of the constant of a file."""
    return f"${file.parent.name}_{file.stem}"


class _Module:
    """A file without comments. Raises ValueError for an import or export in a form that the files here do not have."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = _name(file)
        self._source = _COMMENT.sub("", file.read_text("utf-8"))
        other_lines = _EXPORT.sub("", _LATER_IMPORT.sub("", _IMPORT.sub("", self._source)))
        if unsupported := re.search(r"^(?:import|export)\b.*|\bimport\(.*", other_lines, re.MULTILINE):
            raise ValueError(
                f"{file.name} has {unsupported[0]!r}: imports and exports are joined in the forms of the files here"
            )

    @cached_property
    def imports(self) -> list[Path]:
        """The imported files."""
        return [self._path(match["path"]) for match in _IMPORT.finditer(self._source)]

    @cached_property
    def later_imports(self) -> list[Path]:
        """The files that are imported later."""
        return [self._path(match["path"]) for match in _LATER_IMPORT.finditer(self._source)]

    def _path(self, path: str) -> Path:
        return (self.file.parent / path).resolve()

    def body(self, rewrite: Callable[[_Module, str], str] = lambda _, source: source) -> str:
        """The source without indents, its imports read from the constants in front. rewrite: returns it changed."""

        def import_constant(match: re.Match[str]) -> str:
            names = f"default: {match['whole']}"
            if not match["whole"]:
                names = _RENAMED.sub(r"\1: \2", " ".join(match["names"].split()).rstrip(","))
            return f"const {{ {names} }} = {_name(self._path(match['path']))};"

        source = _IMPORT.sub(import_constant, rewrite(self, self._source))
        return re.sub(r"\n\s+", "\n", source).lstrip()

    def constant(self, rewrite: Callable[[_Module, str], str] = lambda _, source: source) -> str:
        """A constant with what the file exports."""
        body = self.body(rewrite)
        exports = [f"default: {name}" if default else name for default, _, name in _EXPORT.findall(body)]
        body = _EXPORT.sub(r"\g<kind> \g<name>", body)
        return f"const {self.name} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"


def _in_order(file: Path, modules: dict[Path, _Module], importing: tuple[Path, ...] = ()) -> list[_Module]:
    """The module of a file behind all that it imports. modules: those that were read; new ones are added behind them.

    Raises ValueError for files that import each other.
    """
    if file in importing:
        raise ValueError(f"{file.name} imports itself, through other files or not")
    module = modules.get(file) or _Module(file)
    order: dict[_Module, None] = {}
    for imported in module.imports:
        order |= dict.fromkeys(_in_order(imported, modules, (*importing, file)))
    modules.setdefault(file, module)
    return [*order, modules[file]]
