"""Texts on which the engine of the browser edition is compared with Python, and what Python makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from bert_core import Tokenizer
from bert_core.refused import Refused
from tests.hostile import HOSTILE
from viz_app.site.stored_runs import encoding_fields

SENTENCES = [
    "a",
    ".",
    "!!!",
    "[MASK]",
    "She opened the [MASK] and walked in.",
    "The capital of France is [MASK].",
    "[MASK][MASK] are here, [MASK]!",
    "[MASK]ed and un[MASK]ing x[MASK]y",
    "[[MASK]] ([MASK]) [mask] [ MASK ] <mask>",
    "[CLS] typed [SEP] specials [PAD] [UNK] ##ing [unused1]",
    "the the the the",
    "It's the dog's bone, isn't it? Don't!",
    "Mr. O'Neill's U.S.A. e.g. i.e. Ph.D.",
    "hello...world!?--“quoted” ‘single’ «guillemets» — dash – en … ellipsis",
    "$100.50 + 20% = 50€ £3 ¥9 a*b^c~d`e|f<g>h",
    "http://example.com/path?x=1&y=2#frag user@mail.org",
    "C++ C# .NET a_b snake_case camelCase ALLCAPS",
    "1,234,567.89 3.14e-10 0xFF 12:30 2024-01-02",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "    leading and trailing   spaces    ",
    "tab\there\nand\r\nnewline\x0bvertical\x0cpage",
]
SCRIPTS = [
    "naïve café Ångström São Paulo Zürich ¿Qué? ¡Hola! Ñandú",
    "Cafe\u0301 nai\u0308ve e\u0301 a\u0308 o\u0302 a\u0301\u0301b \u0301leading",
    "x̂ ẍ ż̇ ạ̈ combined Z͑ͫ̓ͪ̂ͫ̽͏̴̙a̲l̙g̨o̷",
    "Æsop œuvre Łódź đ Ø ħ Straße GROẞ",
    "İstanbul ISTANBUL ıstanbul ŉ ǰ ǅ ǆ Ǆ ſlong",
    "ΟΔΥΣΣΕΥΣ Σίσυφος ΐ ᾳ ᾼ ΑΣ ΑΣ. ΣΑ σς",
    "русский текст Ёлка ёж Москва",
    "עברית שָׁלוֹם עולם العربية مُحَمَّد السلام عليكم",
    "हिन्दी नमस्ते दुनिया क्षेत्र தமிழ் తెలుగు বাংলা ગુજરાતી",
    "ไทย สวัสดี ภาษาไทย ქართული ԵՐԵՎԱՆ Ⴀⴀ Ꭰꭰ",
    "日本語の文章です。 我爱北京天安门 mixed日本and한국words",
    "한국어 문장입니다 안녕하세요 \u1112\u1161\u11ab",
    "𠀋𪚥𫝀 丽 \u2b820\U0002b820\U0002b920 rare ideographs",
    "emoji 😀😃 👨‍👩‍👧 🇩🇪 👍🏽 ❤️ end 😀",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 flag I ❤️ NY",
    "ｆｕｌｌｗｉｄｔｈ ＡＢＣ １２３ ！？ ﬁnal ﬂow ﬃ ﷺ ﻻ",
    "① ⓐ ㊗ ㈱ ㍿ ㌔ Ⅷ Ⅻ ½ ⅓ ² ⁵ ₂ ③",
    "´ ¨ ˆ ˜ ¸ ` ^ ~ \u00b7 · • ‧ ・ °C ℃ ℉ № ™ ® ©",
    "K Å Ω ℌ ℝ ℵ∑∫∂√∞≈≠≤≥ →←↑↓⇒ 𝐁𝐨𝐥𝐝 𝒮𝒸𝓇𝒾𝓅𝓉 𝔉𝔯𝔞𝔨",
]
INVISIBLE = [
    "nbsp\u00a0and\u2003em\u2009thin\u3000wide\u1680ogham\u180emongolian",
    "zero\u200bwidth soft\u00adhyphen bom\ufeff end wo\u2060rd",
    "control\u0007bell\u0000nul\u001funit next\u0085line",
    "replacement\ufffd char private \ue000 use unassigned \u0378 \U000e0100 x",
    "\u2028line\u2029para\u202eright\u202c",
    "[MASK]\u200b[MASK]\ufeff",
    # Combining marks that normalization sorts, and some that stay.
    "a\u302e\u1b44b \uac00\u302e\u0323c e\u0301\u0323\u302e\u1b44 é\u0323\u302f \u0344\u0323\u302e",
    "\u0628\u0651\u064e\u08d4 \u0653\u08d3 \U0001d15f\u302e\U0001d166",
]
LONG = [
    "a" * 600,
    "b" * 100,
    "b" * 101,
    "b" * 100 + "\u0301",
    "\u00e9" * 101,
    "unaffable " * 300,
    "The quick brown fox jumped over the lazy dog. " * 50,
    "日本語" * 200,
]
PAIRS = [
    ("He went to the bank.", "It was closed."),
    ("日本", "naïve [MASK]"),
    ("A?", "   "),
    ("A?", "\ufeff a"),
    ("short", "long " * 300),
    ("long " * 600, "short"),
    ("a b " * 200, "c d " * 200),
    ("unaffable " * 300, "embeddings " * 300),
    ("<b>bold</b> [MASK]", "</script><script>alert(1)</script>"),
]
REFUSED = [
    ("", ""),
    ("  \n\t", ""),
    ("\x1c\x1d\u0085", ""),
    ("", "second"),
    (" ", " second"),
    ("\u200b\u200d", ""),
    ("first", "\u200b\ufeff"),
    ("\ufeff", ""),
    ("half \ud83d", ""),
    ("first", "\ude00 half"),
    ("half \ud83d", "\ude00 half"),
]
WORDS = "the quick brown fox jumped over a lazy dog while Headlight reads unbelievable embeddings".split()  # noqa: SIM905
# Blocks of characters for fuzzed texts, by their first and last code points; the last one contains all others.
BLOCKS = """
0-7f 80-24f 300-36f 370-52f 590-6ff 8a0-dff 1ab0-1bff 1dc0-1fff 2000-2bff 3000-30ff 4e00-4fff a900-a9ff ac00-acff
f900-ffff 11000-11fff 1d100-1d1ff 1f300-1f9ff 2f800-2fa1d 0-10ffff
"""


def texts() -> list[tuple[str, str]]:
    """Texts of 3 to 512 tokens with their second texts, which are empty for most."""
    return [(text, "") for text in (*SENTENCES, *SCRIPTS, *INVISIBLE, *HOSTILE, *LONG)] + PAIRS


def fuzzed_texts(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Texts of words and drawn characters; one in four has a second text."""
    draw = random.Random(seed)
    for _ in range(count):
        yield _fuzzed(draw), _fuzzed(draw) if draw.random() < 0.25 else ""


def _fuzzed(draw: random.Random) -> str:
    """A text of up to 14 parts."""
    parts = []
    for _ in range(draw.randint(1, 14)):
        characters = "".join(map(_character, [draw] * draw.randint(1, 7)))
        word = draw.choice(WORDS)
        parts.append(draw.choice([word, characters, word + characters, "[MASK]", draw.choice(["[SEP]", "<mask>"])]))
    return draw.choice([" ", " ", ""]).join(parts)


def _character(draw: random.Random) -> str:
    """A character that is no surrogate."""
    first, last = draw.choice(BLOCKS.split()).split("-")
    code_point = draw.randint(int(first, 16), int(last, 16))
    return chr(code_point) if not 0xD800 <= code_point < 0xE000 else " "


def python_encodings(
    tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], max_length: int = 512
) -> list[dict[str, Any]]:
    """The fields of the encoding of each text and its second text, or the message of the error under "error"."""
    return [_python_encoding(tokenizer, text, pair, max_length) for text, pair in pairs]


def _python_encoding(tokenizer: Tokenizer, text: str, pair: str, max_length: int) -> dict[str, Any]:
    """The fields of one encoding, or its error."""
    try:
        return encoding_fields(tokenizer.encode(text, pair, max_length=max_length))
    except Refused as error:
        return {"error": str(error)}
