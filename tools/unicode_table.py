"""Write `viz_app/site/engine/unicode.js`: `python -m tools.unicode_table`.

The file lists the characters that the tokenizers library treats in a special way. The properties of browsers are those
of other versions of Unicode, so the tokenizer of the browser engine uses this table instead of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

FILE = Path(__file__).parents[1] / "viz_app" / "site" / "engine" / "unicode.js"
LINE_LENGTH = 120
HEADER = """\
// Written by tools/unicode_table.py. Each table lists the code points of characters, or the first and last code points
// of ranges, as hexadecimal numbers.
"""


def _bert_normalizer(
    *, clean_text: bool = False, handle_chinese_chars: bool = False, strip_accents: bool = False
) -> Callable[[str], str]:
    """Return the function of a BertNormalizer with a single option."""
    normalizer = BertNormalizer(
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
        strip_accents=strip_accents,
        lowercase=False,
    )
    return lambda text: str(normalizer.normalize_str(text))


def _properties() -> Iterator[tuple[str, str, Callable[[str], bool]]]:
    """Yield the name of each table, its description, and whether a character is in it."""
    clean = _bert_normalizer(clean_text=True)
    separate = _bert_normalizer(handle_chinese_chars=True)
    strip_accents = _bert_normalizer(strip_accents=True)
    decompose, split = NFD().normalize_str, BertPreTokenizer().pre_tokenize_str

    def is_nonstarter(character: str) -> bool:
        # U+0334 has the lowest combining class, 1, and U+0345 the highest, 240.
        return any(decompose(pair) == pair[::-1] for pair in (f"{character}\u0334", f"\u0345{character}"))

    yield "DROPPED", "`clean_text` removes them.", lambda c: not clean(c)
    yield "IDEOGRAPHS", "`handle_chinese_chars` puts spaces around them.", lambda c: separate(c) != c
    yield "ACCENTS", "`strip_accents` removes them.", lambda c: not strip_accents(c)
    yield "DECOMPOSED", "`strip_accents` replaces them by their canonical decompositions.", lambda c: decompose(c) != c
    yield "NONSTARTERS", "Decomposition sorts adjacent ones by their combining classes.", is_nonstarter
    yield "SEPARATE", "Each is a word of its own.", lambda c: len(split(f"a{c}b")) == 3


def _ranges(code_points: Iterable[int]) -> Iterator[str]:
    """Yield adjacent code points as ranges in hexadecimal notation."""
    ranges: list[list[int]] = []
    for code_point in code_points:
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    for first, last in ranges:
        yield f"{first:x}" if first == last else f"{first:x}-{last:x}"


def _lines(parts: Iterable[str]) -> Iterator[str]:
    """Yield parts with commas between them as lines."""
    line = ""
    for part in parts:
        if len(line) + len(part) + 2 > LINE_LENGTH:
            yield f"{line},"
            line = ""
        line = f"{line},{part}" if line else part
    yield line


def table() -> str:
    """Return the content of the file."""
    characters = [chr(code_point) for code_point in range(0x110000) if not 0xD800 <= code_point < 0xE000]
    content = HEADER
    for name, description, is_listed in _properties():
        lines = "\n".join(_lines(_ranges(ord(character) for character in characters if is_listed(character))))
        content += f"\n/** {description} */\nexport const {name} = `\n{lines}\n`;\n"
    return content


def main() -> None:
    """Write the table, or compare the file with it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is not up to date, and write nothing")
    if not parser.parse_args().check:
        FILE.write_text(table(), encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != table():
        parser.exit(1, f"{FILE.name} is not that of this version of the tokenizers library\n")


if __name__ == "__main__":
    main()
