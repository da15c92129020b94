"""The engine of the browser edition in Chromium: results as of the library, and one typed error for each failure."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route

import bert_core
from bert_core.loading import LoadedModel
from tests.browser.conftest import SWITCHES, opened_tab
from tests.browser.static_site import StaticSite, build_site, serve_site
from tests.conftest import built_once

LOAD = """async ({ folder = "/model/", cancelAt, ...options }) => {
  const { Engine } = await import("/engine/engine.js");
  const engine = (globalThis.engine ??= new Engine());
  const controller = new AbortController();
  const [progress, warnings] = [[], []];
  const onProgress = (state) => {
    progress.push(state);
    if (state.loadedBytes >= cancelAt) controller.abort();
  };
  const onWarning = ({ name, message }) => warnings.push({ name, message });
  try {
    const { name } = await engine.load({ folder, signal: controller.signal, onProgress, onWarning, ...options });
    return { name, progress, warnings };
  } catch ({ name, message }) {
    return { error: name, message, progress, warnings };
  }
}"""
CALL = """async ([method, ...values]) => {
  const plain = (value) => (ArrayBuffer.isView(value) ? [...value] : value);
  try {
    const request = values[0].headMask ? { ...values[0], headMask: Float32Array.from(values[0].headMask) } : values[0];
    const result = await globalThis.engine[method](request, ...values.slice(1));
    return JSON.parse(JSON.stringify(result, (_, value) => plain(value)));
  } catch ({ name, message }) {
    return { error: name, message };
  }
}"""
REQUEST = {"inputIds": [101, 2016, 103, 102], "positions": [2], "gradients": False}
TARGET = {"terms": [{"position": 2, "token": 2341, "weight": 1}]}
GRADIENTS = {**REQUEST, "target": TARGET, "gradients": True, "baselineIds": [101, 0, 103, 102]}


@pytest.fixture(scope="session")
def site_folder() -> Path:
    """The site, exported once."""
    return built_once("engine-site", build_site)


@pytest.fixture
def site(site_folder: Path) -> Iterator[StaticSite]:
    with serve_site(site_folder) as server:
        yield server


@contextmanager
def new_page(browser: Browser, address: str) -> Iterator[Page]:
    """A page of the site in a browser window with an empty storage."""
    page = opened_tab(browser)
    page.goto(address)
    try:
        yield page
    finally:
        page.context.close()


@contextmanager
def page_with(browser: Browser, site: StaticSite, *switches: str) -> Iterator[Page]:
    """A page of the site in a Chromium that was started with further switches."""
    started = browser.browser_type.launch(executable_path=shutil.which("chromium"), args=[*SWITCHES, *switches])
    try:
        with new_page(started, site.address) as page:
            yield page
    finally:
        started.close()


@pytest.fixture
def site_page(browser: Browser, site: StaticSite) -> Iterator[Page]:
    with new_page(browser, site.address) as page:
        yield page


def load(page: Page, **options: object) -> dict[str, Any]:
    """Load the model; returns its name or the error, with the progress and the warnings."""
    result: dict[str, Any] = page.evaluate(LOAD, options)
    return result


def call(page: Page, method: str, *values: object) -> Any:
    """Call a method of the engine; returns its result or the error."""
    return page.evaluate(CALL, [method, *values])


def array(values: dict[str, Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values["data"]]).reshape(values["dims"])


def assert_near(found: np.ndarray | Sequence[float], expected: np.ndarray, share: float = 1e-4) -> None:
    """The largest difference is at most a share of the largest value."""
    assert np.shape(found) == np.shape(expected)
    assert np.abs(np.asarray(found) - expected).max() <= share * np.abs(expected).max()


def downloads(site: StaticSite) -> list[str]:
    """Names of the requested files of the model and of the runtime, without descriptions and modules."""
    names = [
        path.rpartition("/")[2] for path in site.received if path.startswith(("/model/", "/compressed/", "/runtime/"))
    ]
    return [name for name in names if not name.endswith((".json", ".js"))]


# ---------------------------------------------------------------------------- results


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return bert_core.load("headlight-mini", device="cpu")


@pytest.mark.parametrize("compressed", [False, True])
def test_results_are_those_of_the_library(
    browser: Browser, site: StaticSite, loaded: LoadedModel, compressed: bool
) -> None:
    """Maps, gradients, predictions, integrated gradients and ablations of a pair with a head off, under the policy.

    The policy is once sent by the server, and once stated by the page.
    """
    encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.", "It was cold.")
    target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    gates = bert_core.head_mask_without(loaded.config, [(2, 1)])
    run = bert_core.capture(loaded, encoding, target=target, head_mask=gates)
    position, token = encoding.mask_positions[0], target.token_id
    pad, removable = loaded.tokenizer.pad_id, target.removable(encoding)
    request = {
        "inputIds": encoding.input_ids, "tokenTypeIds": encoding.token_type_ids, "headMask": gates.ravel().tolist(),
        "positions": [position], "target": {"terms": [{"position": position, "token": token, "weight": 1}]},
        "baselineIds": [pad if i in removable else number for i, number in enumerate(encoding.input_ids)],
        "gradients": True,
    }  # fmt: skip
    site.sends_policy = not compressed
    with new_page(browser, f"{site.address}/{'meta' if compressed else 'index'}.html") as page:
        assert load(page, folder="/compressed/" if compressed else "/model/")["name"] == "headlight-mini"
        result = call(page, "run", request)
        attribution = call(page, "integratedGradients", request, {"steps": 20})
        heads = [(layer, head) for layer in range(6) for head in (0, 5)]
        ablations = call(page, "ablateHeads", request, heads)
        assert page.problems == []
    assert_near(array(result["attention"]), run.attention)
    assert_near(array(result["attentionGradient"]), run.gradient)
    assert_near(array(result["headMaskGradient"]), run.gate_gradient)
    logits = array(result["logits"])[0]
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert np.abs(probabilities - run.predictions[0].probabilities).max() < 5e-5
    difference = np.subtract(*array(result["nextSentenceLogits"]))
    assert 1 / (1 + np.exp(-difference)) == pytest.approx(run.nsp, abs=5e-5)
    assert array(result["targetValue"]) == pytest.approx(run.target_value, abs=5e-5)
    expected = bert_core.integrated_gradients(loaded, encoding, target, steps=20, head_mask=gates)
    assert_near(list(attribution["scores"]), expected.scores)
    assert attribution["baselineValue"] == pytest.approx(expected.baseline_value, abs=1e-4)
    assert attribution["completenessError"] == pytest.approx(expected.gap, abs=1e-3)
    sweep = bert_core.ablate_heads(loaded, encoding, target=target, head_mask=gates)
    assert sweep.values is not None
    for ablation, (layer, head) in zip(ablations, heads, strict=True):
        assert (ablation["layer"], ablation["head"]) == (layer, head)
        assert ablation["targetValue"] == pytest.approx(sweep.values[layer, head], abs=1e-4)
        assert ablation["probability"] == pytest.approx(np.exp(sweep.values[layer, head]), abs=1e-4)


def test_a_request_that_is_not_allowed_leaves_the_engine_usable(site_page: Page) -> None:
    """Each invalid request is an InvalidInputError; a request before loading and after closing is an EngineError."""
    assert load(site_page)["name"] == "headlight-mini"
    invalid = call(site_page, "run", {**REQUEST, "inputIds": [101] * 513})
    assert invalid["error"] == "InvalidInputError"
    assert invalid["message"] == "The text has 513 tokens, but headlight-mini reads at most 512: shorten it."
    assert call(site_page, "run", REQUEST)["logits"]["dims"] == [1, 30522]
    site_page.evaluate("globalThis.engine.close()")
    assert call(site_page, "run", REQUEST)["error"] == "EngineError"


# ---------------------------------------------------------------------------- loading


def test_the_second_load_takes_files_from_the_storage(site_page: Page, site: StaticSite, site_folder: Path) -> None:
    """Progress never decreases and ends at the total; then, only descriptions are requested, or nothing if offline."""
    description = json.loads((site_folder / "model" / "model.json").read_text())
    runtime = json.loads((site_folder / "runtime" / "runtime.json").read_text())
    total = sum(file["bytes"] for file in description["files"]) + runtime["file"]["compressed_bytes"]
    first = load(site_page)
    assert len(downloads(site)) == len(description["files"]) + 1
    site.received.clear()
    second = load(site_page)
    assert downloads(site) == []
    site_page.route(re.compile(r"/model/|/runtime/.*(json|deflated)$"), lambda route: route.abort())
    offline = load(site_page)
    for result in (first, second, offline):
        sizes = [state["loadedBytes"] for state in result["progress"]]
        assert result["name"] == "headlight-mini"
        assert sizes == sorted(sizes)
        assert sizes[-1] == total
        assert {state["totalBytes"] for state in result["progress"]} == {total}
        assert [state["phase"] for state in result["progress"]] == ["download"] * (len(sizes) - 1) + ["start"]
        assert result["warnings"] == []


def test_a_new_version_replaces_the_stored_one(site_page: Page, site: StaticSite) -> None:
    """After a complete load, only the cache of the loaded version exists."""

    def with_version(route: Route) -> None:
        response = route.fetch()
        route.fulfill(json={**response.json(), "version": "2"})

    assert load(site_page)["name"] == "headlight-mini"
    site_page.route("**/model/model.json", with_version)
    assert load(site_page)["name"] == "headlight-mini"
    assert site_page.evaluate("caches.keys()") == ["headlight-2"]


def test_a_failed_download_names_the_file_and_can_be_continued(site_page: Page, site: StaticSite) -> None:
    """404, no connection, a file that is too short, and an interruption: the next load asks for the rest only."""
    pattern, name = "**/model/weights-3.bin", "weights-3.bin"
    failures = {
        "the server answered with status 404": lambda route: route.fulfill(status=404, body="none"),
        "there is no connection": lambda route: route.abort(),
        "only 9 of 7999488 bytes were received": lambda route: route.fulfill(body="truncated"),
    }
    for reason, handler in failures.items():
        site_page.route(pattern, handler)
        result = load(site_page)
        assert (result["error"], result["message"]) == (
            "DownloadError",
            f"{name} could not be downloaded, because {reason}: load the model again.",
        )
        site_page.unroute(pattern)
    site.interrupted = name
    result = load(site_page)
    assert result["error"] == "DownloadError"
    assert result["message"].startswith(f"{name} could not be downloaded, because the connection was interrupted")
    assert call(site_page, "run", REQUEST)["error"] == "EngineError"
    site.interrupted = None
    site.received.clear()
    assert load(site_page)["name"] == "headlight-mini"
    assert downloads(site) == [name, "weights-4.bin", "weights-5.bin"]


@pytest.mark.parametrize("name", ["ort.wasm.min.js", "ort-wasm-simd-threaded.js", "runtime.json", "model.json"])
def test_a_missing_file_of_the_runtime_is_named(site_page: Page, name: str) -> None:
    site_page.route(f"**/{name}", lambda route: route.fulfill(status=404, body="none"))
    result = load(site_page)
    assert result["error"] == "DownloadError"
    assert result["message"].startswith(f"{name} could not be downloaded")


@pytest.mark.parametrize("name", ["worker.js", "requests.js"])
def test_a_script_of_the_worker_that_is_missing_is_a_failed_download(site_page: Page, name: str) -> None:
    """Also a module that the worker imports; the next load works."""
    site_page.evaluate("import('/engine/engine.js')")
    site_page.route(f"**/engine/{name}", lambda route: route.fulfill(status=404, body="none"))
    assert load(site_page)["error"] == "DownloadError"
    site_page.unroute(f"**/engine/{name}")
    assert load(site_page)["name"] == "headlight-mini"


def test_files_that_are_no_model_are_unsupported(site_page: Page) -> None:
    """A description of something else, and a graph that the runtime cannot read."""
    site_page.route("**/model/model.json", lambda route: route.fulfill(json={"name": "other"}))
    assert load(site_page)["error"] == "UnsupportedModelError"
    site_page.unroute("**/model/model.json")
    site_page.route("**/model/model.onnx", lambda route: route.fulfill(body=bytes(len(route.fetch().body()))))
    assert load(site_page)["error"] == "UnsupportedModelError"


def test_a_load_is_cancelled(site_page: Page, site: StaticSite) -> None:
    """It rejects with CancelledError and requests no more files; the next load continues."""
    result = load(site_page, cancelAt=20_000_000)
    assert result["error"] == "CancelledError"
    assert result["progress"][-1]["loadedBytes"] < 25_000_000
    site_page.wait_for_timeout(500)
    assert "weights-5.bin" not in downloads(site)
    assert load(site_page)["name"] == "headlight-mini"
    assert downloads(site).count("weights-0.bin") == 1


# ---------------------------------------------------------------------------- cancelled requests and workers that end

CANCEL = """async ([method, values, cancelAt]) => {
  const controller = new AbortController();
  let completed = 0;
  const onProgress = (count) => {
    completed = count;
    if (count === cancelAt) controller.abort();
  };
  const { signal } = controller;
  const error = await globalThis.engine[method](...values, { signal, onProgress, steps: 1000 }).catch((error) => error);
  const atRejection = completed;
  const request = { inputIds: [101, 102], gradients: false };
  const { attention } = await globalThis.engine.run(request);
  return { error: error.name, atRejection, completed, dims: attention.dims };
}"""


def test_long_requests_are_cancelled_between_runs(site_page: Page) -> None:
    """They reject at once, and the worker goes on to the next request."""
    assert load(site_page)["name"] == "headlight-mini"
    heads = [[layer, head] for layer in range(6) for head in range(12)] * 20
    for method, values in (("integratedGradients", [GRADIENTS]), ("ablateHeads", [GRADIENTS, heads])):
        result = site_page.evaluate(CANCEL, [method, values, 3])
        assert (result["error"], result["atRejection"]) == ("CancelledError", 3)
        assert (result["completed"], result["dims"]) == (3, [6, 12, 2, 2])
    cancelled = site_page.evaluate(
        """() => globalThis.engine.run({ inputIds: [101], gradients: false }, { signal: AbortSignal.abort() })
            .catch(({ name }) => name)"""
    )
    assert cancelled == "CancelledError"


def test_a_worker_that_ends_rejects_its_requests(site_page: Page, site_folder: Path) -> None:
    """An EngineError during loading and during a run; the next load starts a new worker."""
    source = (site_folder / "engine" / "worker.js").read_text()
    crash = (
        source + 'addEventListener("message", ({ data }) => { if (data.kind === "run") throw new Error("crash"); });'
    )
    for body, is_loaded in (("throw new Error();", False), (crash, True)):
        answer = partial(Route.fulfill, body=body, content_type="text/javascript")
        site_page.route("**/engine/worker.js", lambda route, _, answer=answer: answer(route))
        result = load(site_page) if not is_loaded else (load(site_page), call(site_page, "run", REQUEST))[1]
        assert (result["error"], result["message"]) == (
            "EngineError",
            "The model stopped unexpectedly: load it again.",
        )
        site_page.unroute("**/engine/worker.js")
    assert load(site_page)["name"] == "headlight-mini"
    assert call(site_page, "run", REQUEST)["logits"]["dims"] == [1, 30522]


# ---------------------------------------------------------------------------- limits of the browser


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ("--jitless", "WebAssembly is switched off in this browser: switch it on, or use another browser."),
        pytest.param(
            "--no-enable-sse4-1", "This browser has no WebAssembly with SIMD: use a newer browser.",
            marks=pytest.mark.skipif(machine() != "x86_64", reason="the switch is for this processor"),
        ),
    ],
)  # fmt: skip
def test_without_webassembly_it_says_so(browser: Browser, site: StaticSite, switch: str, message: str) -> None:
    """WebAssemblyError before anything is downloaded."""
    with page_with(browser, site, f"--js-flags={switch}") as page:
        result = load(page)
    assert (result["error"], result["message"]) == ("WebAssemblyError", message)
    assert downloads(site) == []


def test_a_policy_that_forbids_webassembly_is_recognised(site_page: Page) -> None:
    """The policy of the worker is that of its own file."""
    site_page.route(
        "**/engine/worker.js",
        lambda route: route.fulfill(
            response=route.fetch(),
            headers={"content-type": "text/javascript", "content-security-policy": "script-src 'self'"},
        ),
    )
    assert load(site_page)["error"] == "WebAssemblyError"


def test_too_little_memory_for_the_model(browser: Browser, site: StaticSite) -> None:
    """OutOfMemoryError, after which the engine is not usable."""
    with page_with(browser, site, "--js-flags=--wasm-max-mem-pages=1000") as page:
        result = load(page)
        assert (result["error"], result["message"]) == (
            "OutOfMemoryError",
            "The memory of the browser is full: close other tabs, or use a shorter text.",
        )
        assert call(page, "run", REQUEST)["error"] == "EngineError"


def test_too_little_memory_for_a_long_text(browser: Browser, site: StaticSite) -> None:
    """OutOfMemoryError; after another load, a short text works."""
    with page_with(browser, site, "--js-flags=--wasm-max-mem-pages=4000") as page:
        assert load(page)["name"] == "headlight-mini"
        long = {**GRADIENTS, "inputIds": [101] * 512, "baselineIds": [101] * 512}
        assert call(page, "run", long)["error"] == "OutOfMemoryError"
        assert call(page, "run", REQUEST)["error"] == "EngineError"
        assert load(page)["name"] == "headlight-mini"
        assert call(page, "run", GRADIENTS)["embeddingGradient"]["dims"] == [4, 384]


def test_a_full_storage_is_a_warning(site_page: Page, site: StaticSite) -> None:
    """The model loads with one warning, or the load is rejected if storage is required."""
    devtools = site_page.context.new_cdp_session(site_page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": site.address, "quotaSize": 12_000_000})
    result = load(site_page)
    assert result["name"] == "headlight-mini"
    (warning,) = result["warnings"]
    assert warning["name"] == "StorageError"
    assert warning["message"].startswith("The storage of the browser is full")
    required = load(site_page, requireStorage=True)
    assert (required["error"], required["message"]) == ("StorageError", warning["message"])


def test_without_storage_the_model_loads(browser: Browser, site: StaticSite) -> None:
    """An address that is not secure has no Cache API."""
    with page_with(browser, site, "--host-resolver-rules=MAP site.test 127.0.0.1") as page:
        page.goto(f"http://site.test:{site.server_port}/")
        assert page.evaluate("'caches' in globalThis") is False
        result = load(page)
        assert result["name"] == "headlight-mini"
        assert [warning["name"] for warning in result["warnings"]] == ["StorageError"]
        assert load(page, requireStorage=True)["error"] == "StorageError"
