"""The folder of a site: pages, texts, stored runs, and a model that runs in the browser of each visitor."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bert_core.loading import LoadedModel
from bert_core.methods import method_of
from bert_core.onnx_export.export import DESCRIPTION_FILE, export_onnx
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.refused import Refused
from bert_core.target_kinds import TARGET_KINDS
from viz_app.access import MAX_TEXT_CHARACTERS
from viz_app.components.joining import joined_scripts
from viz_app.components.look import views_look
from viz_app.export.markup import render, variables
from viz_app.lessons.parsing import OWN_LESSONS, folder_faults, lessons
from viz_app.maps import UNITS
from viz_app.pages.start import EXAMPLES
from viz_app.pages.why import EXAMPLE as ATTRIBUTION_EXAMPLE
from viz_app.pages.why.page import UNLIKELY
from viz_app.pages.why.scores import SMALLEST_SHOWN
from viz_app.shell.address import MAX_LINK_CHARACTERS
from viz_app.shell.change import NAMED_HEADS
from viz_app.shell.examples import first_example
from viz_app.shell.swaps import SWAPS, replace_word, swapped_word
from viz_app.site.compression import compress_parts
from viz_app.site.lessons import (
    METHODS,
    LeftOut,
    StoredView,
    check_settings,
    lesson_description,
    select_lessons,
    stored_views,
)
from viz_app.site.stored_runs import stored_key, stored_run
from viz_app.texts import ENGLISH, LANGUAGES, page_texts

# Folders of the pages; each has an index.html.
PAGE_FOLDERS = ("", "predict/", "attention/", "heads/", "why/", "learn/")
# Files of texts that the pages use, and those that only lessons use.
TEXT_FILES = ("start", "predict", "attention", "heads", "why", "find", "learn", "frame", "site")
LESSON_TEXT_FILES = ("lesson", "checks")
PAGE_FILE, SITE_FILE = "index.html", "site.json"
STYLE_SHEETS = ("site.css", "pages.css", "lessons.css")  # joined as site.css
OFFLINE_FILE = "offline.js"
FIRST_FILES = (PAGE_FILE, "app.js", "site.css", SITE_FILE)  # of every first figure, besides a stored run
# Parts of a tokenizer, and their types that engine/tokenizer_file.js reads.
SUPPORTED_TOKENIZER = {
    "model": ("WordPiece",),
    "normalizer": ("BertNormalizer",),
    "pre_tokenizer": ("BertPreTokenizer",),
    "post_processor": ("TemplateProcessing", "BertProcessing"),
}
MAX_WEIGHT_BYTES = 250_000_000  # transferred to each visitor
_FOLDER = Path(__file__).parent
_OFFLINE_VALUES = '{ version: "", pages: [], files: [] }'  # in the source of the service worker


@dataclass(frozen=True)
class BuiltSite:
    """What `build_site` wrote: numbers of bytes and files, and the left-out lessons as (name, reason).

    first_bytes: received before the first figure. visit_bytes: of a first visit with the model.
    """

    files: int
    total_bytes: int
    first_bytes: int
    visit_bytes: int
    left_out: list[LeftOut]


_UNFINISHED = (
    ".headlight-site-unfinished-"  # start of the name of the folder in which a site is written before it is complete
)


def build_site(
    loaded: LoadedModel,
    folder: str | Path,
    *,
    lessons_folder: Path | None = None,
    exported: Path | None = None,
    report: Progress = ignore_progress,
) -> BuiltSite:
    """Write a site whose pages show a model and run it in the browser.

    The same model and version of Headlight give files with the same bytes.
    folder: a new or empty folder, or a site, whose files are replaced.
    lessons_folder: with further lessons. exported: a folder that `export_onnx` wrote for this model with gradients;
    None exports it. report: called with the number of finished stored runs.
    Raises Refused for a folder with other files, a lesson with a fault, a model whose tokenizer or size a site does not
    support, and as `export_onnx`.
    """
    folder = Path(folder)
    entries = list(folder.iterdir()) if folder.is_dir() else []
    # of runs that were killed
    unfinished = [entry for entry in entries if entry.name.startswith(_UNFINISHED) and entry.is_dir()]
    if len(entries) > len(unfinished) and not is_site(folder):
        raise Refused(f"{folder} contains other files than a site: choose an empty folder")
    check_model(loaded)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in unfinished:
        shutil.rmtree(entry)
    # Inside the folder, since its parent may be on another file system, or be read-only, as with a mounted volume.
    with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as temporary:
        new = Path(temporary)
        with _lessons_of(lessons_folder), _one_thread():
            built = _write_site(loaded, new, exported, report)
        for entry in new.iterdir():
            if (old := folder / entry.name).is_dir():
                shutil.rmtree(old)
            entry.replace(old)
    return built


@contextmanager
def _lessons_of(folder: Path | None) -> Iterator[None]:
    """Add the lessons of a folder to those that `lessons` returns. Raises Refused for the first fault in them."""
    before = os.environ.pop(OWN_LESSONS, None)
    if folder is not None:
        os.environ[OWN_LESSONS] = str(folder)
    try:
        if faults := [fault for tag in LANGUAGES for fault in folder_faults(tag)]:
            raise Refused(faults[0])
        yield
    finally:
        os.environ.pop(OWN_LESSONS, None)
        if before is not None:
            os.environ[OWN_LESSONS] = before


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: of a short text, several wait for each other, and results depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_model(loaded: LoadedModel) -> None:
    """Raise Refused for a model whose tokenizer or size a site does not support."""
    rules = loaded.tokenizer.rules()
    for part, supported in SUPPORTED_TOKENIZER.items():
        kind = (rules[part] or {"type": "missing"})["type"]
        if kind not in supported:
            raise Refused(
                f"{loaded.name} has a tokenizer whose {part} is {kind}: a site supports WordPiece tokenizers like that "
                f"of BERT, with {' or '.join(supported)}"
            )
    size = sum(map(_stored_bytes, loaded.model.parameters()))
    if size > MAX_WEIGHT_BYTES:
        raise Refused(
            f"{loaded.name} has {size / 1e6:,.0f} MB of weights, and a site at most {MAX_WEIGHT_BYTES / 1e6:.0f} MB: "
            "choose a smaller model, or save the weights in float16"
        )


def _stored_bytes(parameter: torch.Tensor) -> int:
    """Return the number of bytes of a parameter in an exported graph, in float16 if that is exact."""
    is_half = torch.equal(parameter.half().float(), parameter.float())
    return parameter.numel() * (2 if is_half else 4)


def is_site(folder: Path) -> bool:
    """Return whether a folder contains a site."""
    return all((folder / name).is_file() for name in (*FIRST_FILES, OFFLINE_FILE))


def _write_site(loaded: LoadedModel, folder: Path, exported: Path | None, report: Progress) -> BuiltSite:
    """Write a site to an empty folder."""
    _write_model(loaded, folder / "model", exported)
    for part in ("engine", "runtime"):
        shutil.copytree(_FOLDER / part, folder / part, ignore=shutil.ignore_patterns("*.d.ts"))
    for page in PAGE_FOLDERS:
        _write(folder / page / PAGE_FILE, render("site/static/index.html", base="../" if page else "./"))
    for path, source in joined_scripts(_FOLDER / "app" / "app.js", _FOLDER, "scripts").items():
        _write(folder / path, source)
    sheets = ((_FOLDER / "app" / name).read_text("utf-8") for name in STYLE_SHEETS)
    _write(folder / "site.css", "\n".join([variables(None), *sheets]))
    shutil.copyfile(_FOLDER.parent / "shell" / "headlight.svg", folder / "icon.svg")
    visit_bytes = sum(_sizes(folder).values())
    examples = [StoredView(example.text, example.pair, example.masked) for example in EXAMPLES.values()]
    site_lessons, left_out = select_lessons(lessons())
    views = [*examples, *_further_views(loaded, examples), *stored_views(site_lessons)]
    stored = _write_stored_runs(loaded, folder / "stored", list(dict.fromkeys(views)), report)
    texts = {tag: _texts(tag, TEXT_FILES) for tag in LANGUAGES}
    texts[ENGLISH]["library"] = _library_texts()
    described = [lesson_description(lesson, loaded) for lesson in site_lessons]
    lesson_texts = {tag: _texts(tag, LESSON_TEXT_FILES) for tag in LANGUAGES}
    _write(folder / "lessons.json", _json({"lessons": described, "texts": lesson_texts}))
    description = {
        "model": _describe_model(folder, visit_bytes),
        "look": views_look(),
        "texts": texts,
        "swaps": SWAPS,
        "examples": [
            {"label": label, **text._asdict(), "other": _swap(loaded, text)[0]}
            for label, text in zip(EXAMPLES, examples, strict=True)
        ],
        "pair": first_example().pair,
        "limits": {
            "text": MAX_TEXT_CHARACTERS,
            "link": MAX_LINK_CHARACTERS,
            "named_heads": NAMED_HEADS,
            "unlikely": UNLIKELY,
            "probability": SMALLEST_SHOWN,
        },
        "first_lesson": _first_lesson(described),
        "lessons": [],
        "check_settings": check_settings(),
        "stored": stored,
    }
    version = _version(folder, description)
    _write(folder / SITE_FILE, _json({"version": version, **description}))
    _write(folder / OFFLINE_FILE, _service_worker(folder, version))
    sizes = _sizes(folder)
    return BuiltSite(
        files=len(sizes),
        total_bytes=sum(sizes.values()),
        first_bytes=sum(sizes[name] for name in (*FIRST_FILES, stored[stored_key(examples[0])])),
        visit_bytes=visit_bytes,
        left_out=left_out,
    )


def _write_model(loaded: LoadedModel, folder: Path, exported: Path | None) -> None:
    """Write the model with compressed weights. exported: its folder, or None."""
    if exported is None:
        export_onnx(loaded, folder, gradients=True)
    else:
        shutil.copytree(exported, folder)
    compress_parts(folder)


def _further_views(loaded: LoadedModel, examples: Sequence[StoredView]) -> Iterator[StoredView]:
    """Yield the examples of the app and of its pages, and those of Home with a word swapped."""
    for text in examples:
        if swapped := _swap(loaded, text)[1]:
            yield text._replace(text=swapped)
    for example in (first_example(), ATTRIBUTION_EXAMPLE):
        yield StoredView(example.text, example.pair, example.masked)


def _swap(loaded: LoadedModel, text: StoredView) -> tuple[str, str]:
    """Return the word by which a word of a text is swapped, and the text with it; ("", "") for none."""
    original = loaded.tokenizer.encode(text.text)
    swap = swapped_word(original, text.masked, SWAPS)
    return ("", "") if swap is None else (swap[1], replace_word(original, *swap))


def _write_stored_runs(
    loaded: LoadedModel, folder: Path, views: Sequence[StoredView], report: Progress
) -> dict[str, str]:
    """Write the run of each text, and return the paths of the files by the keys of the texts."""
    paths = {}
    for number, view in enumerate(views, 1):
        content = stored_run(loaded, view)
        file = folder / f"{_digest(content)}.bin"
        _write(file, content)
        paths[stored_key(view)] = f"{folder.name}/{file.name}"
        report_count(report, number, len(views), "stored runs")
    return paths


def _describe_model(folder: Path, visit_bytes: int) -> dict[str, Any]:
    """Return the field `model` of `SiteDescription`."""
    exported = json.loads((folder / "model" / DESCRIPTION_FILE).read_text("utf-8"))
    names = ("name", "vocabulary", "layers", "heads", "max_tokens", "has_mlm", "has_nsp", "pruned_heads")
    return {**{name: exported[name] for name in names}, "bytes": visit_bytes}


def _first_lesson(described: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the name of the first lesson and its question in all languages; None if there is no lesson."""
    for lesson in described:
        questions = {tag: texts["question"] for tag, texts in lesson["texts"].items()}
        return {"name": lesson["name"], "questions": questions}
    return None


def _texts(tag: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the texts of files that a language has, by the names of the files."""
    return {name: page_texts(name).in_language(tag).own_values for name in names}


def _library_texts() -> dict[str, Any]:
    """Return the texts of the library: what methods measure, how they can mislead, and units of targets and maps."""
    methods = [method_of(name) for name in METHODS]
    units = {kind: target_kind.unit for kind, target_kind in TARGET_KINDS.items()} | UNITS
    texts = {method.name: {"claims": method.claims, "misleads": method.misleads} for method in methods}
    return {"methods": texts, "units": units}


def _service_worker(folder: Path, version: str) -> str:
    """Return the service worker, which stores the small files; the engine stores the files of model and runtime."""
    engine_files = set()
    for part, name in (("model", DESCRIPTION_FILE), ("runtime", "runtime.json")):
        entries = json.loads((folder / part / name).read_text("utf-8"))
        engine_files |= {f"{part}/{name}"}
        engine_files |= {
            f"{part}/{entry.get('compressed_name', entry['name'])}"
            for entry in entries.get("files", [entries.get("file")])
        }
    files = [path for path in _sizes(folder) if path not in engine_files and not path.endswith(PAGE_FILE)]
    source = (_FOLDER / "static" / OFFLINE_FILE).read_text("utf-8")
    assert _OFFLINE_VALUES in source
    return source.replace(_OFFLINE_VALUES, _json({"version": version, "pages": PAGE_FOLDERS, "files": files}))


def _version(folder: Path, description: Mapping[str, Any]) -> str:
    """Return a hash that changes with any file of a site, and with its description."""
    digest = hashlib.sha256(_json(description).encode())
    for path in _sizes(folder):
        digest.update(path.encode())
        digest.update((folder / path).read_bytes())
    return digest.hexdigest()[:16]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _json(value: object) -> str:
    """Return a value as JSON, dataclasses as objects."""
    return json.dumps(value, default=asdict, ensure_ascii=False, separators=(",", ":"))


def _write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the number of bytes of each file below a folder, by paths with slashes, sorted."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
