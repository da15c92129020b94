"""The examples in the docstrings of public names run, and print what the docstrings state."""

from __future__ import annotations

import doctest
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import bert_core

FINDER = doctest.DocTestFinder()
EXAMPLES = {
    test.name: test
    for name in bert_core.__all__
    for test in FINDER.find(getattr(bert_core, name), name, module=False, globs={})  # with the methods of a class
    if test.examples and not test.name.endswith(".config_class")  # which is BertConfig
}
REQUIRED = {
    "ablate_heads", "attention_rollout", "AttentionKnockout", "capture", "captures", "edited", "find_heads",
    "fit_probe", "head_mask_without", "index_file", "load", "make_patch", "Method", "patch", "propose_plan", "pruned",
    "record", "save", "search", "Target", "token_scores", "Tokenizer.encode", "word_target",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_load_for_all_examples() -> Iterator[None]:
    """No example changes a loaded model, so all share it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bert_core, "load", functools.cache(bert_core.load))
        yield


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_its_docstring_states(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs by itself, in an empty folder and without names of other examples."""
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=report.append)
    assert report == [], "".join(report)


def test_the_most_used_names_have_examples_with_a_result() -> None:
    """At least 40 public names have an example, and each example states at least one output."""
    assert len({name.partition(".")[0] for name in EXAMPLES}) >= 40
    assert set(EXAMPLES) >= REQUIRED
    assert [name for name, test in EXAMPLES.items() if not any(example.want for example in test.examples)] == []
