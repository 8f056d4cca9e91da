"""A result as one file to share: what ``--format json`` writes, in a zip, and a note of who wrote it.

FILE.npack: npack.json (the version of the format, and npuperf's), result.json (the document)

It is data only. Nobody extracts it: two members of known names are read into memory, within bounds.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from npuperf.analyze.request import Question
from npuperf.base import __version__
from npuperf.base.declared import Typed
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import PACK, is_file, is_folder, is_pack, open_input, shown, write_atomically
from npuperf.base.messages import Message, say, series, size
from npuperf.base.notes import parse_note
from npuperf.model.schema import MOST_BYTES

if TYPE_CHECKING:
    from npuperf.analyze.request import AnalyzeRequest

#: Of the zip and its members; a document that changes has a version of its own.
_VERSION: Final = 1
_NOTE, _RESULT = "npack.json", "result.json"
#: Bytes of a pack: that of a job of a thousand ranks has a tenth of it.
_MOST: Final = 64 << 20
#: A document is 10 to 30 times as large as its pack; what is large and 200 times as large is none.
_MOST_TIMES: Final = 200
_SMALL: Final = 1 << 20
_MOST_NOTE: Final = 4 << 10
#: What a pack answers as well as the recording does: it changes no answer, or only how many rows of it are shown.
_CHANGES_NOTHING: Final = ("path", "top", "engine", "workers", "scheduler")
_DAMAGED: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, LookupError, OverflowError, RuntimeError,
    NotImplementedError, AttributeError,
)  # fmt: skip


def check_pack(request: AnalyzeRequest) -> None:
    """Raise UsageError for a pack that could not be written, and for what is asked of one that has only answers."""
    if request.anonymize and request.pack is None:
        hint = say("npuperf analyze RUN --pack FILE.npack --anonymize")
        raise UsageError(say("--anonymize says how a pack is written, and none is asked for"), hint=hint)
    if request.pack is not None:
        path = request.pack
        if path.suffix != PACK:
            hint = say("it is known by its name: --pack {name}", name=path.stem + PACK)
            raise UsageError(say("--pack {file}: a pack's name ends in {suffix}", file=str(path), suffix=PACK),
                             hint=hint)  # fmt: skip
        if not is_folder(path.absolute().parent):
            raise UsageError(say("{file}: its folder does not exist", file=str(path)))
        if is_folder(path):
            raise UsageError(say("--pack {file}: a folder, and a file is wanted", file=str(path)))
        if is_file(path) and not request.force:
            hint = say("choose another name, or replace it with --force")
            raise UsageError(say("{file}: already exists", file=str(path)), hint=hint)
    if is_pack(request.path):
        usual = Question()
        asked = [
            _option(name)
            for name in Question.__struct_fields__
            if name not in _CHANGES_NOTHING and getattr(request, name) != getattr(usual, name)
        ]
        asked += [name for name, path in (("--trace", request.trace), ("--trace-full", request.trace_full)) if path]
        if asked:
            what = say("{path}: a pack has what was found, and no tasks, which {options} would need",
                       path=str(request.path), options=series(asked))  # fmt: skip
            raise UsageError(what, hint=say("ask this of the recording, and pack it anew"))


def _option(name: str) -> str:
    """Return the option that sets a field of a question."""
    declared = Question.__annotations__[name].__metadata__[0]
    return str(declared.names[0]) if isinstance(declared, Typed) else "--recipe"


def write_pack(path: Path, document: str) -> Message:
    """Write a document that is JSON, and return what is to be said of the pack."""
    note = {"npack": _VERSION, "npuperf": __version__}
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        for name, content in (
            (_NOTE, msgspec.json.encode(note)),
            (_RESULT, msgspec.json.format(document.encode(), indent=-1)),
        ):
            about = zipfile.ZipInfo(name)  # with no time and no owner
            about.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(about, content)
    write_atomically(path, made.getvalue())
    return say("wrote {file} ({size}): npuperf analyze {file} shows it anywhere", file=str(path),
               size=size(len(made.getvalue())))  # fmt: skip


def read_pack(path: Path) -> Mapping[str, object]:
    """Return the document in a pack as JSON has it. Raises InputError where there is none that this version reads."""
    with open_input(path) as file:
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise InputError(say("{path}: larger than {size}, and no pack is", path=shown(path), size=size(_MOST)))
    try:
        with zipfile.ZipFile(BytesIO(content)) as zipped:
            names = zipped.namelist()
            strange = [name for name in names if name not in (_NOTE, _RESULT)]
            if strange:
                raise _refused(path, say("{name} is nothing that a pack has", name=repr(strange[0][:60])))
            if len(names) != 2:
                raise _refused(path, say("it lacks a part, or has one twice"))
            note = parse_note(_member(path, zipped, _NOTE, _MOST_NOTE))
            version = note.get("npack") if isinstance(note, dict) else None
            if type(version) is not int or version < 1:
                raise _refused(path, say("it does not say which version of packs it is"))
            if version > _VERSION:
                what = say("{path}: a pack of version {version}, and this npuperf reads version {own}",
                           path=shown(path), version=version, own=_VERSION)  # fmt: skip
                raise InputError(what, hint=say("a newer npuperf reads it"))
            found = parse_note(_member(path, zipped, _RESULT, min(MOST_BYTES, max(_MOST_TIMES * len(content), _SMALL))))
    except _DAMAGED as error:
        raise _refused(path, say("it is damaged")) from error
    if not isinstance(found, dict):
        raise _refused(path, say("its result is no document"))
    return found


def _member(path: Path, zipped: zipfile.ZipFile, name: str, most: int) -> str:
    """Return a member's text, of which no more is unpacked than it may have."""
    with zipped.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise _refused(path, say("{name} unpacks to more than {size}", name=name, size=size(most)))
    return content.decode("utf-8", "replace")


def _refused(path: Path, why: Message) -> InputError:
    return InputError(say("{path}: not a pack that npuperf wrote: {why}", path=shown(path), why=why),
                      hint=say("npuperf analyze RUN --pack FILE.npack writes one"))  # fmt: skip
