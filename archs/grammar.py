"""What a net can be made of, from the code: every field of a genotype's parts, every kind of block. Torch-free.

Meanings are those of the docstrings; what is allowed, the field's type says, or a part that is given an unknown name.
"""

import ast
import inspect
import re
from dataclasses import Field, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

from .blocks.spec import BLOCKS, BlockForm, BlockSpec, attention_kinds, conv_kinds
from .json_files import known_names, rule_of
from .parts import STEMS, Encoder, Head, Stem, Style
from .stage import OPTIONS, Stage

PARTS: tuple[type[Any], ...] = (Stem, Stage, Encoder, Head, Style)
Row = dict[str, str]
HEAD = """# The grammar of nets

A net is a `Genotype`: one `Stem`, `Stage`s, an `Encoder` if it has one, one `Head` and one `Style`. This page is made \
from the code by `alternas archs --grammar`. Rules that take two fields together are checked when a \
net is made, and say in one line what they ask for."""


def grammar() -> dict[str, list[Row]]:
    """The rows of every table, by what the table is of."""
    files = dict.fromkeys(_file(spec.pre) for spec in BLOCKS.values())
    return {
        **{part.__name__: field_rows(part) for part in PARTS},
        "stems": [{"kind": f"`{kind}`", "meaning": text} for kind, text in stem_kinds().items()],
        "blocks": [_block_row(spec) for spec in BLOCKS.values()],
        "files": [{"file": f"`{file.name}`", "holds": _docstring(_tree(file))} for file in files],
    }


def page() -> str:
    """The grammar as a page of Markdown."""
    rows, parts = grammar(), [HEAD]
    for part in PARTS:
        parts += [f"## {part.__name__}", " ".join(_doc(part).partition("\n\n")[0].split()), _table(rows[part.__name__])]
        if part is Stem:
            parts += ["Its kinds:", _table(rows["stems"])]
        if part is Stage:
            parts.append("Options have no default: beside each kind of block that has one stands the kind's own value.")
    about = "Conv blocks are a stage's `block`, attention blocks its `attention`."
    parts += ["## Kinds of blocks", about, _table(rows["blocks"])]
    return "\n\n".join([*parts, "Their files in `archs/blocks/`, with papers and sources:", _table(rows["files"])])


def field_rows(part: type[Any]) -> list[Row]:
    """Field, default, what is allowed and what it means, of each field of a part."""
    said = meanings(part) | ({name: option.about for name, option in OPTIONS.items()} if part is Stage else {})
    return [
        {
            "field": f"`{f.name}`",
            "default": _default(f, part),
            "allowed": allowed(part, f.name),
            "meaning": said[f.name],
        }
        for f in fields(part)
    ]


def meanings(part: type[Any]) -> dict[str, str]:
    """Meaning of each field, from the section Attributes of the docstring."""
    _, _, text = _doc(part).partition("Attributes:\n")
    said = dict[str, str]()
    for entry in re.split(r"^    (?=\S)", text, flags=re.MULTILINE)[1:]:
        names, _, meaning = entry.partition(": ")
        said |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return said


def stem_kinds() -> dict[str, str]:
    """Meaning of each kind of stem, from the docstring of `Stem`: sentences after "KIND: "."""
    text = " ".join(_doc(Stem).partition("Attributes:\n")[0].split())
    parts = re.split(rf"(?<=\. )({'|'.join(STEMS)}): ", text)[1:]
    return {kind: meaning.strip() for kind, meaning in zip(parts[::2], parts[1::2], strict=True)}


def allowed(part: type[Any], name: str) -> str:
    """The values that a field may have."""
    hint = get_type_hints(part, include_extras=True)[name]
    kinds = {"block": conv_kinds, "attention": attention_kinds} if part is Stage else {}
    if names := kinds[name]() if name in kinds else known_names(hint):
        return ", ".join(f"`{choice}`" for choice in names)
    return rule_of(hint).removesuffix(" or null")


def _default(field: Field[Any], part: type[Any]) -> str:
    if part is Stage and field.name in OPTIONS:
        return _values({kind: spec.options[field.name] for kind, spec in BLOCKS.items() if field.name in spec.options})
    return f"`{field.default!r}`"


def _values(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} `{value!r}`" for name, value in values.items())


def _block_row(spec: BlockSpec) -> Row:
    made = described(spec.pre)
    if spec.post is not None:
        made = f"Pre-activation: {made} Post-activation: {described(spec.post)}"
    return {
        "kind": f"`{spec.name}`",
        "block": spec.style.label,
        "of": "attention" if spec.attends else "conv",
        "options, its own": _values(dict(spec.options)),
        "fields without effect": ", ".join(f"`{name}`" for name in spec.ignores),
        "made as": made,
        "file": f"`{_file(spec.pre).name}`",
    }


def described(form: BlockForm) -> str:
    """The docstring of a block's module, which is not imported: blocks need torch."""
    name = form.module.partition(":")[2]
    classes = [node for node in _tree(_file(form)).body if isinstance(node, ast.ClassDef) and node.name == name]
    return _docstring(classes[0]) if classes else ""


def _docstring(node: ast.Module | ast.ClassDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())


def _file(form: BlockForm) -> Path:
    spec = find_spec(form.module.partition(":")[0], f"{__package__}.blocks")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _doc(part: type[Any]) -> str:
    return inspect.cleandoc(part.__doc__ or "") + "\n"


def _table(rows: list[Row]) -> str:
    lines = [[*rows[0]], ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(re.sub(r"([|*])", r"\\\1", cell) for cell in line) + " |" for line in lines)
