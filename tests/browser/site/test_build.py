"""The folder of a site: its files, its policy, its stored runs, what works offline, and what is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import bert_core
from bert_core import LoadedModel, Refused, Target
from tests.families import save_family
from tests.test_javascript import ROOT, node
from viz_app import lessons
from viz_app.cli import command
from viz_app.lessons.parsing import OWN_LESSONS
from viz_app.pages.start import EXAMPLES
from viz_app.site import build
from viz_app.site.build import PAGE_FOLDERS, BuiltSite, build_site, check_model
from viz_app.site.lessons import StoredView
from viz_app.site.stored_runs import stored_key, stored_run
from viz_app.texts import keys

POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' data:"
MAX_FIRST_BYTES = 400_000
# Addresses that are names or messages and are never requested: namespaces of XML, and those in the runtime's messages.
NOT_REQUESTED = ("http://www.w3.org/", "https://web.dev/cross-origin-isolation-guide/")
PAIR = StoredView("She opened the [MASK] and walked in.", "It was the [MASK] of a house.")


@pytest.fixture(scope="session")
def description(site: Path) -> dict[str, Any]:
    """The content of site.json."""
    content: dict[str, Any] = json.loads((site / "site.json").read_text("utf-8"))
    return content


def paths(folder: Path) -> set[str]:
    """The paths of all files below a folder."""
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_a_site_has_its_pages_and_what_they_load(site: Path, description: dict[str, Any]) -> None:
    """Every page has its own index.html, and what the pages, the worker and the engine load is there."""
    files = paths(site)
    assert {f"{page}index.html" for page in PAGE_FOLDERS} <= files
    assert {"app.js", "site.css", "icon.svg", "offline.js", "engine/worker.js", "model/tokenizer.json"} <= files
    assert set(description["stored"].values()) == {file for file in files if file.startswith("stored/")}
    model, runtime = (json.loads((site / name).read_text()) for name in ("model/model.json", "runtime/runtime.json"))
    for folder, entry in [*(("model", entry) for entry in model["files"]), ("runtime", runtime["file"])]:
        name = f"{folder}/{entry.get('compressed_name', entry['name'])}"
        assert (site / name).stat().st_size == entry.get("compressed_bytes", entry["bytes"])
    assert "runtime/LICENSE" in files


@pytest.mark.parametrize("page", PAGE_FOLDERS)
def test_every_page_states_the_policy_and_finds_its_files(site: Path, page: str) -> None:
    """The policy allows scripts and requests of the own host alone, nothing is inline, and all addresses are relative
    to the folder of the site."""
    text = (site / page / "index.html").read_text("utf-8")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert policy.startswith(POLICY)
    assert "unsafe-inline" not in policy and "'unsafe-eval'" not in policy
    assert text.index("Content-Security-Policy") < min(text.index("<script"), text.index("<link"))
    assert not re.search(r"<style|\son\w+=|\sstyle=|<script[^>]*>[^<]", text)
    (base,) = re.findall(r'<base href="([^"]*)">', text)
    for address in re.findall(r'(?:src|href)="([^"]*)"', text.replace(f'<base href="{base}">', "")):
        assert (site / page / base / address).resolve().is_relative_to(site.resolve())
        assert (site / page / base / address).is_file()


def test_no_file_loads_from_another_host(site: Path) -> None:
    """The only other addresses are names, those in messages of the runtime, and targets of links in texts."""
    links = re.compile(r'"link":"(https://[^"]*)"')
    for path in paths(site):
        content = (site / path).read_bytes()
        if b"\0" in content or path == "runtime/LICENSE":
            continue
        text = links.sub("", content.decode("utf-8"))
        for address in re.findall(r"(?:https?:)?//[\w-]+\.[\w.-]+[^\s\"'`)]*", text):
            assert address.startswith(NOT_REQUESTED) or f"https:{address}".startswith(NOT_REQUESTED), (path, address)


def test_scripts_import_one_another_alone(site: Path, tmp_path: Path) -> None:
    """Each script that another imports is there, node can read all, and the worker is below the folder of the site."""
    scripts = [site / "app.js", *(site / "scripts").iterdir()]
    assert {"why.js", "lesson_panel.js", "tokenizer.js"} <= {script.name for script in scripts}
    for script in scripts:
        text = script.read_text("utf-8")
        assert "/**" not in text
        for path in re.findall(r'(?:\bfrom |\bimport\()"([^"]*)"', text):
            assert (script.parent / path).is_file(), (script.name, path)
        (tmp_path / f"{script.stem}.mjs").write_text(text, encoding="utf-8")
        node("--check", tmp_path / f"{script.stem}.mjs")
    address = 'new URL("./worker.js", new URL("engine/engine.js", import.meta.url))'
    assert address in (site / "app.js").read_text("utf-8")


def test_the_service_worker_stores_every_file_that_the_engine_does_not(site: Path, description: dict[str, Any]) -> None:
    """Together they store the whole site; the version is that of site.json."""
    text = (site / "offline.js").read_text("utf-8")
    stored = json.loads(re.findall(r"^const SITE = (.*);$", text, re.MULTILINE)[0])
    model, runtime = (json.loads((site / name).read_text()) for name in ("model/model.json", "runtime/runtime.json"))
    engine = {f"model/{entry.get('compressed_name', entry['name'])}" for entry in model["files"]}
    engine |= {f"runtime/{runtime['file']['compressed_name']}", "model/model.json", "runtime/runtime.json"}
    pages = {f"{page}index.html" for page in stored["pages"]}
    assert pages | set(stored["files"]) | engine | {"offline.js"} == paths(site)
    assert not engine & set(stored["files"])
    assert stored["version"] == description["version"]


def test_the_same_model_gives_the_same_bytes(
    tiny_loaded: LoadedModel, tiny_exported: Path, site: Path, tmp_path: Path
) -> None:
    """Also over an older site, whose files disappear; other files beside them remain.

    Nothing is written outside of the folder, which may be a mount in a folder that is read-only.
    """
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "stored" / "old.bin").write_bytes(b"old")
    (tmp_path / "site" / "CNAME").write_text("example.org")
    (tmp_path / "site" / ".headlight-site-unfinished-killed" / "model").mkdir(parents=True)  # of a run that was killed
    siblings = set()

    def report(done: float | None, what: str = "") -> None:
        siblings.update(path.name for path in tmp_path.iterdir())

    build_site(tiny_loaded, tmp_path / "site", exported=tiny_exported, report=report)
    assert siblings == {"site"}
    assert paths(tmp_path / "site") == paths(site) | {"CNAME"}
    for path in paths(site):
        assert (tmp_path / "site" / path).read_bytes() == (site / path).read_bytes(), path


def test_the_version_changes_with_any_file(site: Path, description: dict[str, Any], tmp_path: Path) -> None:
    """The service worker replaces its files if the content or the name of one, or a text, changes."""
    shutil.copytree(site, tmp_path / "site")
    versions = {build._version(tmp_path / "site", description)}
    (tmp_path / "site" / "app.js").write_text("changed")
    versions.add(build._version(tmp_path / "site", description))
    (tmp_path / "site" / "app.js").rename(tmp_path / "site" / "app2.js")
    versions.add(build._version(tmp_path / "site", description))
    versions.add(build._version(tmp_path / "site", {**description, "swaps": {}}))
    assert len(versions) == 4


def test_what_is_received_before_the_first_figure_has_at_most_400_kilobytes(site: Path) -> None:
    """With the stored run of the bundled model for the first example of Home."""
    example = next(iter(EXAMPLES.values()))
    stored = stored_run(bert_core.load("headlight-mini"), StoredView(example.text, example.pair, example.masked))
    sizes = {name: (site / name).stat().st_size for name in (*build.FIRST_FILES, "icon.svg")}
    assert sum(sizes.values()) + len(stored) <= MAX_FIRST_BYTES, sizes


READ = """
import { readFileSync } from "node:fs";
import { readStoredRun } from "./viz_app/site/app/stored_runs.js";
const { run, ablations, attributions } = await readStoredRun("name", new Uint8Array(readFileSync(process.argv[1])));
const encode = (_, value) => value instanceof Float32Array
  ? { floats: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") } : value;
console.log(JSON.stringify({ run, ablations, attributions }, encode));
"""


def read_in_javascript(content: bytes, folder: Path) -> dict[str, Any]:
    """The results in the content of a file as stored_runs.js reads it, arrays in float32."""

    def decode(value: dict[str, Any]) -> Any:
        return np.frombuffer(base64.b64decode(value["floats"]), "<f4") if set(value) == {"floats"} else value

    (folder / "run.bin").write_bytes(content)
    results: dict[str, Any] = json.loads(
        node("--input-type=module", "-e", READ, folder / "run.bin"), object_hook=decode
    )
    return results


def equal(stored: np.ndarray, expected: np.ndarray | None) -> None:
    """Stored numbers are the expected ones in float32, to the bit."""
    assert expected is not None
    np.testing.assert_array_equal(stored, np.asarray(expected, np.float32).ravel())


@pytest.mark.parametrize("kind", ["all heads", "pruned heads"])
@pytest.mark.parametrize(
    "view",
    [StoredView("The cat sat on the old mat.", "", (1, 5)), PAIR, StoredView("The cat sat.", "It was a “dog”.")],
    ids=["masked words", "pair with masks", "pair"],
)
def test_a_stored_run_is_that_of_the_library(
    tiny_loaded: LoadedModel, view: StoredView, kind: str, tmp_path: Path
) -> None:
    """Maps, gradients, predictions, ablations and scores that the browser reads equal those of Python to the bit."""
    loaded = tiny_loaded if kind == "all heads" else bert_core.pruned(tiny_loaded, [(0, 1), (1, 0)])
    results = read_in_javascript(stored_run(loaded, view), tmp_path)
    run, ablations = results["run"], results["ablations"]
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(view.text, view.pair or None), view.masked)
    masks = encoding.mask_positions
    first = bert_core.capture(loaded, encoding, top_k=20)
    target = Target("mlm", masks[0], first.predictions[0].top[0][0]) if masks else Target("nsp")
    expected = bert_core.capture(loaded, encoding, target=target, top_k=20)
    for name, values in (
        ("attention", expected.attention), ("attentionGradient", expected.gradient), ("headMask", expected.head_mask),
        ("headMaskGradient", expected.gate_gradient),
    ):  # fmt: skip
        equal(run[name], values)
    assert [
        (entry["position"], [(token["id"], token["probability"]) for token in entry["top"]])
        for entry in run["predictions"]
    ] == [(prediction.position, list(prediction.top)) for prediction in expected.predictions]
    assert run["nextSentence"] == expected.nsp
    assert (run["encoding"]["inputIds"], run["encoding"]["roles"]) == ([*encoding.input_ids], [*encoding.roles])
    assert run["original"]["text"] == view.text
    assert (run["layers"], run["heads"]) == expected.head_mask.shape
    probability = expected.predictions[0].top[0][1] if masks else expected.nsp
    assert (run["target"]["value"], run["target"]["probability"]) == (expected.target_value, probability)

    sweep = bert_core.ablate_heads(loaded, encoding, target=target)
    assert sweep.values is not None
    equal(ablations["value"], sweep.values)
    equal(ablations["probability"], np.exp(sweep.values) if masks else sweep.nsp)
    for name, (layer, head) in zip(ablations["first"], np.ndindex(expected.head_mask.shape), strict=True):
        if not masks or np.isnan(sweep.values[layer, head]):
            assert name == ""
            continue
        mask = np.ones_like(expected.head_mask)
        mask[layer, head] = 0
        without_head = bert_core.capture(loaded, encoding, head_mask=mask)
        assert name == loaded.tokenizer.token_of(without_head.predictions[0].top[0][0])

    methods = ["gradient x attention", "input x gradient", "integrated gradients", "occlusion"]
    assert [attribution["method"] for attribution in results["attributions"]] == methods
    scores = bert_core.token_scores(loaded, encoding, target, methods, run=expected)
    for attribution, row in zip(results["attributions"], scores, strict=True):
        equal(attribution["scores"], row)
    gaps = [attribution["gap"] for attribution in results["attributions"]]
    assert gaps == [None, None, bert_core.integrated_gradients(loaded, encoding, target).gap, None]


def test_a_text_without_a_target_has_its_maps_only(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Without a mask and a second text there are no gradients, no ablations and no scores."""
    results = read_in_javascript(stored_run(tiny_loaded, StoredView("The cat sat.")), tmp_path)
    equal(
        results["run"]["attention"],
        bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode("The cat sat.")).attention,
    )
    assert results["run"]["target"] is None and results["run"]["attentionGradient"] is None
    assert results["ablations"] is None and results["attributions"] == []


def test_keys_of_stored_runs_are_the_same_in_both_languages() -> None:
    """For quotes, controls, line separators, characters beyond the first plane, and words that are masked."""
    views = [
        StoredView("She gave the book to her brother.", "", (5,)),
        StoredView('"q" \\ / \x00\x1f\x7f\t\n\u2028\u2029 ä ﬀ 😀 <b>&amp;', "second “text”", (0, 10, 200)),
    ]
    code = (
        'import { storedKey } from "./viz_app/site/app/stored_runs.js";'
        "console.log(JSON.stringify(JSON.parse(process.argv[1]).map(([text, pair, masked]) => "
        "storedKey({ text, pair, masked }))));"
    )
    keys = json.loads(node("--input-type=module", "-e", code, json.dumps(views)))
    assert keys == [stored_key(view) for view in views]


def test_the_examples_of_home_are_stored(description: dict[str, Any]) -> None:
    """Each example of Home, and the same with a word swapped, needs no model."""
    assert [example["label"] for example in description["examples"]] == list(EXAMPLES)
    for example in description["examples"]:
        assert (
            stored_key(StoredView(example["text"], example["pair"], tuple(example["masked"]))) in description["stored"]
        )
    swapped = stored_key(StoredView("He gave the book to her brother.", "", (5,)))
    assert description["examples"][0]["other"] == "He" and swapped in description["stored"]


def test_the_path_of_the_model_is_not_published(tiny_model_folder: Path, site: Path) -> None:
    """The model has the last part of its path as its name."""
    assert json.loads((site / "model" / "model.json").read_text("utf-8"))["name"] == tiny_model_folder.name
    for path in paths(site):
        assert str(tiny_model_folder.parent).encode() not in (site / path).read_bytes(), path


def test_texts_are_in_both_languages(description: dict[str, Any]) -> None:
    """German has no text that English lacks, and leaves out those that are not translated."""
    english, german = description["texts"]["en"], description["texts"]["de"]
    assert english["start"]["title"] == "Home" and german["start"]["title"] != "Home"
    assert all(keys(german[page]) <= keys(english[page]) for page in german)
    assert keys(german["why"]) < keys(english["why"])


def test_own_lessons_are_added_or_named(
    tiny_loaded: LoadedModel, tiny_exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lesson that needs no more than a site is in lessons.json, with its texts stored; any other is left out."""
    (tmp_path / "lessons").mkdir()
    for name, bundled in (("mine", "follows"), ("other", "when")):
        shutil.copy(lessons.__path__[0] + f"/{bundled}.toml", tmp_path / "lessons" / f"{name}.toml")
    monkeypatch.setenv(OWN_LESSONS, "before")
    built = build_site(tiny_loaded, tmp_path / "site", lessons_folder=tmp_path / "lessons", exported=tiny_exported)
    assert os.environ[OWN_LESSONS] == "before"
    names = [
        lesson["name"] for lesson in json.loads((tmp_path / "site" / "lessons.json").read_text("utf-8"))["lessons"]
    ]
    assert names[-1] == "mine" and "follows" in names
    assert ("other", "The step “do” needs the page “layers”.") in built.left_out


def test_a_fault_in_an_own_lesson_is_one_sentence(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """It names the file, and nothing is written."""
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "mine.toml").write_text("title =")
    with pytest.raises(Refused, match=r"^mine\.toml is no TOML file"):
        build_site(tiny_loaded, tmp_path / "site", lessons_folder=tmp_path / "lessons")
    assert not paths(tmp_path / "site")


def test_the_workflow_of_the_guide_publishes_what_the_command_writes() -> None:
    """It is valid, may write pages, and uploads the folder that `headlight site` wrote."""
    guide = (ROOT / "docs" / "how-to" / "publish-a-site.md").read_text("utf-8")
    (workflow,) = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL))
    assert workflow["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    steps = workflow["jobs"]["site"]["steps"]
    (folder,) = [step["with"]["path"] for step in steps if "upload-pages-artifact" in step.get("uses", "")]
    assert f"headlight site --out {folder}" in [step.get("run") for step in steps]
    deployment = next(step for step in steps if "deploy-pages" in step.get("uses", ""))
    assert deployment["id"] in workflow["jobs"]["site"]["environment"]["url"]


def test_other_folders_are_refused(tiny_loaded: LoadedModel, tiny_exported: Path, tmp_path: Path) -> None:
    """A folder with other files is left as it is."""
    (tmp_path / "thesis.txt").write_text("text")
    with pytest.raises(Refused, match=r"contains other files than a site: choose an empty folder$"):
        build_site(tiny_loaded, tmp_path, exported=tiny_exported)
    assert paths(tmp_path) == {"thesis.txt"}


@pytest.mark.parametrize(("family", "kind"), [("roberta", "BPE"), ("albert", "Unigram")])
def test_tokenizers_that_the_engine_does_not_read_are_refused(family: str, kind: str, tmp_path: Path) -> None:
    """The sentence names the part, and what is supported."""
    loaded = bert_core.load(str(save_family(family, tmp_path / "model")), device="cpu")
    with pytest.raises(Refused, match=rf"has a tokenizer whose model is {kind}: a site supports WordPiece tokenizers"):
        build_site(loaded, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_large_models_are_refused(tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights count with the bytes that are transferred: two if they are exact in float16, and otherwise four."""
    weights = nn.ParameterList([nn.Parameter(torch.ones(10_000_000)), nn.Parameter(torch.full((10_000_000,), 0.1))])
    large = dataclasses.replace(tiny_loaded, model=weights)
    check_model(large)
    monkeypatch.setattr(build, "MAX_WEIGHT_BYTES", 59_999_999)
    with pytest.raises(Refused, match=r"has 60 MB of weights, and a site at most 60 MB: choose a smaller model, or "):
        check_model(large)


def test_the_command_states_sizes_and_what_to_do_next(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, sizes, the lessons that are left out, and the commands to look at the site."""
    built = BuiltSite(50, 44_000_000, 250_000, 43_000_000, [build.LeftOut("when", "It needs the page “layers”.")])
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record(*args: object, **options: object) -> BuiltSite:
        calls.append((args, options))
        return built

    monkeypatch.setattr(build, "build_site", record)
    out = tmp_path / "my site"
    assert command.run(["site", "--out", str(out), "--model", str(tiny_model_folder), "--lessons", str(tmp_path)]) == 0
    ((_, folder), options), captured = calls[0], capsys.readouterr()
    assert folder == out and options["lessons_folder"] == tmp_path
    assert captured.out.startswith("50 files, 44.0 MB: ")
    assert "250 kB before the first figure, 43.0 MB with the model" in captured.out
    assert f"python -m http.server 8000 --directory '{out}'\n  http://localhost:8000" in captured.out
    assert "left out: the lesson when. It needs the page “layers”." in captured.err
