"""Tokenizers that only transformers can make of their files, converted by it to the form of the library tokenizers."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from bert_core.charsmap import check_charsmap
from bert_core.config import MAX_JSON_BYTES, check_size
from bert_core.merges import MAX_PIECES
from bert_core.refused import Refused

MAX_PIECE_CHARACTERS = 500  # characters; conversion tries each place at which a piece can be divided
INSTALL_COMMAND = 'pip install "headlight[convert]"'


def convert_tokenizer(folder: Path, name: str) -> tuple[str, dict[str, str]] | None:
    """The content of the tokenizer.json that transformers makes of a folder, and its special tokens by their names.

    name: the tokenizer class. None if transformers has no such class, and would read tokenizer.json as it is.
    No code that comes with a folder is run, and tables in it are looked through before they are.
    Raises Refused if transformers is not installed, cannot read the files, or would run a tokenizer of its own in
    Python, which has no tokenizer.json.
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
            "with the library tokenizers and set tokenizer_class to PreTrainedTokenizerFast"
        )
    files: dict[str, str] = kind.vocab_files_names
    if not (folder / "tokenizer.json").is_file():
        lacking = [file for key, file in files.items() if key != "tokenizer_file" and not (folder / file).is_file()]
        if lacking or len(files) < 2:
            raise Refused(f"its tokenizer_class is {name}, and {folder} has no {(lacking or ['tokenizer.json'])[0]}")
    for path in folder.glob("*.model"):
        _check_model(path)
    for path in (folder / file for file in files.values()):
        if path.is_file():
            check_size(path, MAX_JSON_BYTES)
    try:
        made: Any = kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except ImportError as error:
        raise Refused(
            f"its tokenizer_class is {name}, for which transformers needs another package: install it by {INSTALL_COMMAND}"
        ) from error
    return made.backend_tokenizer.to_str(), dict(made.special_tokens_map)


def _check_model(path: Path) -> None:
    """Raise Refused for a SentencePiece model whose conversion could take for ever, or stop the program."""
    check_size(path, MAX_JSON_BYTES)
    from transformers.convert_slow_tokenizer import import_protobuf

    try:
        format_of_models: Any = import_protobuf()  # type: ignore[no-untyped-call]
    except ImportError as error:
        raise Refused(f"{path.name} is read with sentencepiece: install it by {INSTALL_COMMAND}") from error
    model = format_of_models.ModelProto.FromString(path.read_bytes())
    pieces = [piece.piece for piece in model.pieces]
    if len(pieces) > MAX_PIECES or max(map(len, pieces), default=0) > MAX_PIECE_CHARACTERS:
        raise Refused(
            f"{path.name} has {len(pieces):,} pieces of up to {max(map(len, pieces), default=0):,} characters: at most "
            f"{MAX_PIECES:,} of {MAX_PIECE_CHARACTERS} are read"
        )
    if table := model.normalizer_spec.precompiled_charsmap:
        check_charsmap(base64.b64encode(table).decode())
