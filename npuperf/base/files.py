"""Files and folders: the one door for reading what others wrote, walks, and writing files whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import io
import os
import shutil
import stat
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TextIO

from npuperf.base.errors import InputError, UsageError, unreadable
from npuperf.base.messages import Message, say, say_n

#: What ``npuperf profile`` writes about a run, in its run directory.
MANIFEST: Final = "npuperf.json"
#: What the name of a result ends in that was written to be shared (:mod:`npuperf.against.packs`).
PACK: Final = ".npack"


@contextmanager
def open_input(path: str | Path) -> Iterator[io.FileIO]:
    """Open a file that others wrote, to read its bytes, unbuffered: the door that every reader takes.

    Only files are opened: a pipe would be waited for, and a device may do something as soon as it is opened. Raises
    InputError where this is none, and where the system fails to open or to read it.
    """
    try:
        with _opened(path) as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def read_input(path: str | Path) -> bytes:
    """Return the bytes of a file that others wrote. Raises InputError as :func:`open_input` does."""
    with open_input(path) as file:
        return file.readall()


@contextmanager
def open_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[TextIO]:
    """Open a text that others wrote, for its lines; what is no character is replaced. Raises as :func:`open_input`."""
    with (
        open_input(path) as file,
        io.TextIOWrapper(io.BufferedReader(file), encoding, errors="replace", newline="\n") as lines,
    ):
        yield lines


def check_input(path: str | Path) -> None:
    """Raise InputError where :func:`open_input` would, for who hands a path on to a library that opens it by itself."""
    with open_input(path):
        pass


class _Input(io.FileIO):
    """A file whose ``read`` gives all that is asked for: of a network the system may give less at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return ``size`` bytes, fewer at the end of the file alone."""
        if size is None or size < 0:
            return self.readall()
        blocks, left = [], size
        while left and (block := super().read(left)):
            blocks.append(block)
            left -= len(block)
        return b"".join(blocks)


def _opened(path: str | Path) -> io.FileIO:
    def refuse_special(mode: int) -> None:
        if stat.S_ISREG(mode):
            return
        kinds = ((stat.S_ISDIR, say("a folder")), (stat.S_ISFIFO, say("a pipe")), (stat.S_ISSOCK, say("a socket")))
        kind = next((kind for is_kind, kind in kinds if is_kind(mode)), say("a device"))
        hint = None if stat.S_ISDIR(mode) else say("save what it gives to a file, and name that")
        raise InputError(say("{path}: {kind}, not a file; it was not opened", path=str(path), kind=kind), hint=hint)

    def opener(name: str, flags: int) -> int:
        """Return the handle of a file. It is looked at before it is opened, and after: it may be another one then."""
        refuse_special(os.stat(name).st_mode)  # noqa: PTH116 - a path as the opener gets it
        handle = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            refuse_special(os.fstat(handle).st_mode)
        except BaseException:
            os.close(handle)
            raise
        return handle

    try:
        return _Input(path, opener=opener)
    except ValueError as error:  # a path that no file can have
        raise InputError(say("{path}: cannot be read: {why}", path=str(path), why=str(error))) from error


def shown(path: str | Path) -> str:
    """Return how to call a path in a message or a command: relative where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


#: The system's answers for what is not there, or not for us; any other is a failure, and no answer.
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM)


def _mode(path: Path, told: list[Message] | None) -> int:
    try:
        return path.stat().st_mode
    except ValueError:  # no file can have this name
        return 0
    except OSError as error:
        if told is not None and not isinstance(error, FileNotFoundError | NotADirectoryError):
            told.append(unreadable(path, error).what)
        elif error.errno not in _NOT_THERE:
            raise unreadable(path, error) from error
        return 0


def is_file(path: Path, told: list[Message] | None = None) -> bool:
    """Tell whether there is a file; what the system does not let us see is none.

    Where it fails to look, ``told`` gets why; without it that raises InputError.
    """
    return stat.S_ISREG(_mode(path, told))


def is_pack(path: Path) -> bool:
    """Tell whether a path is a pack's, by its name; whether it is one shows when it is read."""
    return path.suffix == PACK and is_file(path)


def is_folder(path: Path) -> bool:
    """Tell whether there is a folder, as :func:`is_file` does."""
    return stat.S_ISDIR(_mode(path, None))


def is_there(path: Path) -> bool:
    """Tell whether there is anything, links followed, as :func:`is_file` does."""
    return _mode(path, None) != 0


def is_special(path: Path) -> bool:
    """Tell whether something is there that is no file: a folder, a pipe, a device."""
    return is_there(path) and not is_file(path)


def state_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file: size, moments of change (ns), which one it is; nothing where there is none.

    None: the system does not say.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def total_bytes(files: Iterable[Path]) -> int:
    """Return how large files are together; reading those that cannot be asked says why."""
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size
    return total


def write_atomically(path: Path, text: str | bytes) -> None:
    """Write text or bytes so that ``path`` never holds half of it; raises InputError when it cannot be written.

    What is no file is written to as it is: root would replace a device such as /dev/null by a file.
    """
    with writing_atomically(path) as file:
        # names of files need not be UTF-8
        file.write(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open ``path`` to write bytes in pieces, as :func:`write_atomically` does: it gets them once all are written.

    Whatever is raised inside leaves it as it was. An OSError inside is taken for one of writing.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as there:
                yield there
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with begun_in(path.parent) as (begun, file):
            yield file
            file.close()  # some disks say only now that they are full
            begun.chmod(0o666 & ~_umask())
            begun.replace(path)
    except OSError as error:
        raise InputError(
            say("{path}: cannot be written: {why}", path=str(path), why=error.strerror or str(error))
        ) from error


def _umask() -> int:
    """Return what new files may not be; where the system does not tell, by setting it for an instant."""
    with suppress(OSError), Path("/proc/self/status").open("rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- What is begun beside its place, and gone at the end unless it was moved there. A kill leaves it: who begins
# something there next removes it. Its name says whose it is, a lock that its writer still lives.

_BEGUN: Final = ".npuperf-"
#: Where a file system has no locks, nobody writes any more what was last changed so many seconds ago.
_LEFT_BEHIND: Final = 3600


@contextmanager
def begun_in(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a new file in a folder, which only its owner may read and whoever wants it moves away. Raises OSError."""

    def make() -> tuple[int, str]:
        return tempfile.mkstemp(prefix=_BEGUN, dir=folder)

    with _held(folder, make) as (path, descriptor):
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                yield path, file
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def scratch_folder(folder: str | None = None) -> Iterator[Path]:
    """Yield a new folder for what is needed no longer than this, in ``folder`` or where the user wants such things."""
    within = Path(folder or tempfile.gettempdir())

    def make() -> tuple[int, str]:
        path = tempfile.mkdtemp(prefix=_BEGUN, dir=within)
        try:
            return os.open(path, os.O_RDONLY), path
        except BaseException:
            os.rmdir(path)  # noqa: PTH106
            raise

    with _held(within, make) as (path, _):
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _held(folder: Path, make: Callable[[], tuple[int, str]]) -> Iterator[tuple[Path, int]]:
    """Yield what was made in a folder, and its descriptor: as long as that is open, nobody takes it for left behind."""
    remove_left(folder)
    while True:
        descriptor, path = make()
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            os.lstat(path)
        except FileNotFoundError:  # taken for left behind before it was locked
            os.close(descriptor)
        except OSError:  # nobody can tell
            break
        else:
            break
    try:
        yield Path(path), descriptor
    finally:
        os.close(descriptor)


def remove_left(folder: Path) -> None:
    """Remove what this user's killed processes have begun in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(_BEGUN)]:
            found = entry.stat(follow_symlinks=False)
            if found.st_uid != os.geteuid() or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                continue
            with suppress(OSError):
                _remove_if_left(entry.path, found)


def _remove_if_left(path: str, found: os.stat_result) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            if found.st_mtime > time.time() - _LEFT_BEHIND:
                return
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path)
        else:
            Path(path).unlink()
    finally:
        os.close(descriptor)


# -- Walking folders: each is entered once, also behind links, and those that are not are told.

#: Far more than any job has: whoever walks further is lost, or in a whole file system.
_MOST_FOLDERS: Final = 200_000
_MOST_DEEP: Final = 100
#: Of what is told of many folders alike, the first so many are named.
_NAMED: Final = 3

#: Device and number: what a folder is, whatever it is called.
_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder has, by name: ``folders``, some of them behind ``links``, and ``files``, or whatever else is there.

    Links that lead nowhere are neither. ``has_any``: there is anything at all, also what is passed over.
    """

    path: Path
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    links: set[str] = field(default_factory=set)
    has_any: bool = False


class _Place(NamedTuple):
    """A folder that is still to be entered. ``link``: it lies behind one."""

    path: Path
    deep: int = 0
    link: bool = False


@dataclass(slots=True)
class Walk:
    """The folders at and below a path. In the end ``told`` has why some below it were not entered.

    ``refused``: those that the system would not let us enter.

    What ``passed_over`` names (a folder, and a name in it) is left out without a word. Folders behind links come last,
    so that what lies below the path is called by its own name; without ``links`` they are left out.
    """

    path: Path
    passed_over: Callable[[Path, str], bool] = lambda _folder, _name: False
    links: bool = True
    told: list[Message] = field(default_factory=list)
    refused: list[Path] = field(default_factory=list)
    _entered: set[_Identity] = field(default_factory=set)
    _above: set[_Identity] = field(default_factory=set)
    _behind: deque[_Place] = field(default_factory=deque)

    def __iter__(self) -> Iterator[Folder]:
        """Yield every folder before those in it. Raises InputError where the path itself cannot be entered."""
        waiting = [_Place(self.path)]
        while waiting or self._behind:
            place = waiting.pop() if waiting else self._behind.popleft()
            if len(self._entered) == _MOST_FOLDERS:
                self.told.append(say("{path}: there are more than {n} folders; this one and the rest were not entered, "
                                     "so name one further down", path=str(place.path), n=_MOST_FOLDERS))  # fmt: skip
                return
            try:
                folder = self._enter(place) if self._is_new(place) else None
            except OSError as error:
                self._refuse(place, error)
                continue
            if folder is not None:
                yield folder
                below = (name for name in folder.folders if name not in folder.links)
                waiting += reversed([_Place(place.path / name, place.deep + 1) for name in below])

    def _enter(self, place: _Place) -> Folder:
        """Return what a folder has, and remember the links in it for later."""
        with os.scandir(place.path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        folder = Folder(place.path, has_any=bool(listed))
        for entry in listed:
            if entry.is_symlink():
                self._note_link(entry, folder, place.deep + 1)
            elif not entry.is_dir(follow_symlinks=False):
                folder.files.append(entry.name)
            elif not self.passed_over(place.path, entry.name):
                folder.folders.append(entry.name)
        return folder

    def _note_link(self, entry: os.DirEntry[str], folder: Folder, deep: int) -> None:
        """Put a link where it belongs; one that leads nowhere is told."""
        place = _Place(folder.path / entry.name, deep, link=True)
        try:
            is_folder = stat.S_ISDIR(entry.stat().st_mode)
        except OSError as error:
            if not self.passed_over(folder.path, entry.name):
                self._refuse(place, error)
            return
        if not is_folder:
            folder.files.append(entry.name)
        elif not self.passed_over(folder.path, entry.name):
            folder.folders.append(entry.name)
            folder.links.add(entry.name)
            if self.links:
                self._behind.append(place)

    def _is_new(self, place: _Place) -> bool:
        """Tell whether a folder is still to be entered, and say why where it is not."""
        if place.deep > _MOST_DEEP:
            what = say("{path}: more than {n} folders deep; it was not entered", path=str(place.path), n=_MOST_DEEP)
            self.told.append(what)
            return False
        found = place.path.stat()
        identity = found.st_dev, found.st_ino
        if place.link and self._known(place, identity):
            return False
        new = identity not in self._entered
        self._entered.add(identity)
        return new

    def _known(self, place: _Place, identity: _Identity) -> bool:
        """Tell whether a link leads to what was entered by another name, or to where the walk came from."""
        if not self._above:
            real = Path(os.path.realpath(self.path))
            self._above = {(found.st_dev, found.st_ino) for found in map(os.stat, real.parents)}
        if identity in self._above:
            self.told.append(
                say("{path}: a link to a folder that it lies in; it was not followed", path=str(place.path))
            )
        elif identity in self._entered:
            self.told.append(say("{path}: a link to a folder that was entered already; it was not entered twice",
                                 path=str(place.path)))  # fmt: skip
        else:
            return False
        return True

    def _refuse(self, place: _Place, error: OSError) -> None:
        if place.path == self.path:
            raise unreadable(self.path, error) from error
        name, why = str(place.path), error.strerror or str(error)
        if place.link and isinstance(error, FileNotFoundError):
            self.told.append(say("{path}: a link that leads nowhere", path=name))
            return
        self.refused.append(place.path)
        if place.link:
            self.told.append(say("{path}: a link that cannot be followed: {why}", path=name, why=why))
        else:
            self.told.append(say("{path}: cannot be entered: {why}", path=name, why=why))


def files_below(path: Path, pattern: str, told: list[Message]) -> list[Path]:
    """Return the files below a folder with names like ``pattern`` (``plog-*.log``), sorted.

    ``told`` gets why folders were not entered. Raises InputError where the folder itself cannot be.
    """
    walk = Walk(path)
    found = [folder.path / name for folder in walk for name in fnmatch.filter(folder.files, pattern)]
    told += few(walk.told)
    return sorted(found)


def matching(folder: Path, pattern: str, told: list[Message]) -> list[Path]:
    """Return what is in a folder or just below it by a pattern of names (``device_*/info.json.*``), sorted.

    ``told`` gets which folders the system did not let us enter: Path.glob passes over them.
    """
    found = [folder]
    for part in pattern.split("/"):
        entered, found = found, []
        for place in entered:
            try:
                found += [place / name for name in sorted(fnmatch.filter(os.listdir(place), part))]  # noqa: PTH208
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                why = error.strerror or str(error)
                told.append(say("{path}: cannot be entered: {why}", path=str(place), why=why))
    return found


def refuse_ways_out(folder: Path, *names: str, copied: bool = False) -> None:
    """Raise InputError where what is written into a folder would arrive elsewhere, or be waited for.

    That is so behind links that lead out of it, and with pipes, sockets and devices. ``names``: what in the folder is
    looked at, with all below it; without names it is everything. The folder itself may lie behind a link: it was named.
    ``copied``: a copy of it is written to, out of which links by whole paths lead, too.
    """
    root = os.path.realpath(folder)
    for top in (Path(root, name) for name in names or ("",)):
        below = (Path(base, name) for base, folders, files in os.walk(top) for name in (*folders, *files))
        for path in (*top.parents, top, *below):
            if path.is_relative_to(root) and not _stays(path, root, copied=copied):
                shown = folder / path.relative_to(root)
                what = say("{path}: leads out of {folder}, or is neither a file nor a folder; nothing is written there",
                           path=str(shown), folder=str(folder))  # fmt: skip
                raise InputError(what, hint=say("remove it; where it is a link, put there what it leads to"))


def refuse_inputs(files: Iterable[Path | None], inputs: Iterable[str | Path]) -> None:
    """Raise UsageError where a file to write is one to read, links followed as far as they lead anywhere."""
    read = set(map(os.path.realpath, inputs))
    for file in files:
        if file is not None and os.path.realpath(file) in read:
            hint = say("choose another name: what is analyzed is never changed")
            raise UsageError(say("{file}: was read for this report", file=str(file)), hint=hint)


def _stays(path: Path, root: str, *, copied: bool) -> bool:
    """Tell whether what is written there arrives in the folder ``root``; what cannot be seen gets nothing written."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            leads_elsewhere = copied and path.readlink().is_absolute()
            return not leads_elsewhere and Path(os.path.realpath(path)).is_relative_to(root)
    except OSError:
        return True
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def few(told: Iterable[Message]) -> list[Message]:
    """Return the first messages of each kind, and after them how many more there are."""
    kinds: dict[str, list[Message]] = {}
    for message in told:
        kinds.setdefault(message.id, []).append(message)
    kept = []
    for alike in kinds.values():
        more = len(alike) - _NAMED
        if more > 0:
            last = say_n("{last}; and so for {n} more", "{last}; and so for {n} more", more, last=alike[_NAMED - 1])
            alike = [*alike[: _NAMED - 1], last]
        kept += alike
    return kept
