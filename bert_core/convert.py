"""Tokenizers that transformers builds from its own files, converted to the format of the tokenizers library."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from bert_core.charsmap import check_charsmap
from bert_core.config import MAX_JSON_BYTES, check_size
from bert_core.merges import MAX_PIECES
from bert_core.refused import Refused

MAX_PIECE_CHARACTERS = 500  # conversion tries every position at which a piece can be divided
INSTALL_COMMAND = 'pip install "headlight[convert]"'


def convert_tokenizer(folder: Path, name: str) -> tuple[str, dict[str, str]] | None:
    """Convert the tokenizer of a folder with transformers.

    name: the tokenizer class.
    Returns the content of a tokenizer.json, and the special tokens by name. Returns None if transformers has no such
    class, and would read tokenizer.json without changes.
    The conversion runs no code from the folder, and checks SentencePiece models before it reads them.
    Raises Refused if transformers is not installed, cannot read the files, or implements the class in Python, so that
    there is no tokenizer.json.
    """
    try:
        from transformers import TokenizersBackend
        from transformers.models.auto.tokenization_auto import tokenizer_class_from_name
    except ImportError as error:
        raise Refused(
            f"its tokenizer_class is {name}, which transformers 5 converts: install it by {INSTALL_COMMAND}, or save a "
            "tokenizer.json with it and set tokenizer_class to PreTrainedTokenizerFast"
        ) from error
    kind = tokenizer_class_from_name(name) if re.fullmatch(r"\w+Tokenizer(Fast)?", name) else None
    if kind is None:
        return None
    if not (isinstance(kind, type) and issubclass(kind, TokenizersBackend)):
        raise Refused(
            f"its tokenizer_class is {name}, which is code in Python and not run here: train or write a tokenizer.json "
            "with the tokenizers library and set tokenizer_class to PreTrainedTokenizerFast"
        )
    files: dict[str, str] = kind.vocab_files_names
    if not (folder / "tokenizer.json").is_file():
        missing = [file for key, file in files.items() if key != "tokenizer_file" and not (folder / file).is_file()]
        if missing or len(files) < 2:
            raise Refused(f"its tokenizer_class is {name}, and {folder} has no {(missing or ['tokenizer.json'])[0]}")
    for path in folder.glob("*.model"):
        _check_model(path)
    for path in (folder / file for file in files.values()):
        if path.is_file():
            check_size(path, MAX_JSON_BYTES)
    try:
        tokenizer: Any = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except ImportError as error:
        raise Refused(
            f"its tokenizer_class is {name}, for which transformers needs another package: install it by "
            f"{INSTALL_COMMAND}"
        ) from error
    return tokenizer.backend_tokenizer.to_str(), dict(tokenizer.special_tokens_map)


def _check_model(path: Path) -> None:
    """Raise Refused for a SentencePiece model whose conversion could run very long, or abort the program."""
    check_size(path, MAX_JSON_BYTES)
    from transformers.convert_slow_tokenizer import import_protobuf

    try:
        model_format: Any = import_protobuf()  # type: ignore[no-untyped-call]
    except ImportError as error:
        raise Refused(f"{path.name} is read with sentencepiece: install it by {INSTALL_COMMAND}") from error
    model = model_format.ModelProto.FromString(path.read_bytes())
    pieces = [piece.piece for piece in model.pieces]
    if len(pieces) > MAX_PIECES or max(map(len, pieces), default=0) > MAX_PIECE_CHARACTERS:
        raise Refused(
            f"{path.name} has {len(pieces):,} pieces of up to {max(map(len, pieces), default=0):,} characters: at most "
            f"{MAX_PIECES:,} of {MAX_PIECE_CHARACTERS} are read"
        )
    if table := model.normalizer_spec.precompiled_charsmap:
        check_charsmap(base64.b64encode(table).decode())
