"""Reads untrusted files with a size limit, and writes files without following links out of a folder.

A folder from another source may hold a pipe, a device or a link where a file is expected. Reading a pipe would block,
reading a device would never end, and writing through a link would overwrite its target. A file that an option names for
output may be a stream too: `writing` writes to it and does not replace it by a file.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import select
import stat
import sys
import time
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from fastllmload.errors import InputError

LARGEST_OPTION = 64 << 20  # bytes of a file that an option names and that is read into memory
LARGEST_KEY_FILE = 64 << 10  # no server takes a longer header
LARGEST_DATASET = 8 << 30
LARGEST_DOCUMENT = 1 << 30  # bytes of a JSON document of a run folder
AT_ONCE = 1 << 20
NPY_MAGIC, LARGEST_NPY_HEAD = b"\x93NUMPY", 10_000
NPY_LENGTHS = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}  # by version: bytes of the head's length
NOT_REGULAR = "it is not a regular file"
WRITER_S = 2.0  # seconds within which a process must open a named pipe for writing
READER_S = 2.0  # the same for reading
TOO_DEEP = "it is nested too deeply"


def regular(path: Path) -> int:
    """Size in bytes. OSError with a reason when it is not a regular file (a pipe, a device, a folder) or does not exist."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(found.st_mode) else NOT_REGULAR, str(path))
    return found.st_size


def read_regular(path: Path, most: int = LARGEST_DOCUMENT) -> bytes:
    """Content of a regular file. OSError as `regular`, and when it has more than *most* bytes."""
    regular(path)
    return read_bounded(path, most)


def read_bounded(path: str | Path, most: int = LARGEST_OPTION) -> bytes:
    """Content of *path*, maybe a pipe. OSError when it has more than *most* bytes, or when no process opens the pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor)
        if stat.S_ISDIR(kind.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        null = os.makedev(1, 3)
        if stat.S_ISCHR(kind.st_mode) and kind.st_rdev != null and not os.isatty(descriptor):
            raise OSError(errno.EINVAL, "it is a device", str(path))
        first = first_bytes(descriptor, path) if stat.S_ISFIFO(kind.st_mode) else b""
        os.set_blocking(descriptor, True)
        with open(descriptor, "rb", closefd=False) as file:
            return read_open(file, most, first)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> int:
    """Its CRC-32."""
    found = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(AT_ONCE):
            found = zlib.crc32(piece, found)
    return found


def first_bytes(pipe: int, path: str | Path) -> bytes:
    """First bytes of *pipe*, a non-blocking descriptor. OSError when no process opens it for writing within WRITER_S."""
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    events = ready.poll(WRITER_S * 1e3)  # also returns when a writer has opened and closed the pipe
    try:
        data = os.read(pipe, 1 << 16)
    except BlockingIOError:  # a writer has it open and has not written yet
        return b""
    if not data and not events:
        raise OSError(
            errno.EINVAL, f"it is a pipe, and no process opened it for writing within {WRITER_S:g} s", str(path)
        )
    return data


def read_open(file: IO[bytes], most: int = LARGEST_OPTION, first: bytes = b"") -> bytes:
    """*first* and the rest of *file*. OSError when that is more than *most* bytes."""
    data = bytearray(first)
    while len(data) <= most and (piece := file.read(min(AT_ONCE, most + 1 - len(data)))):
        data += piece
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than the limit of {most:,} bytes for such a file")
    return bytes(data)


def check_npy_head(file: IO[bytes]) -> None:
    """ValueError or SyntaxError when the header of the .npy file *file* is invalid. *file* is at its start, before and
    after. numpy can take minutes to parse a corrupted header, and would also open an archive or a pickle.
    """
    magic, version = file.read(len(NPY_MAGIC)), file.read(2)
    if magic != NPY_MAGIC or version not in NPY_LENGTHS:
        raise ValueError("it does not begin like a .npy file")
    size = int.from_bytes(file.read(NPY_LENGTHS[version]), "little")
    if size > LARGEST_NPY_HEAD:
        raise ValueError(f"its header has {size:,} bytes")
    ast.literal_eval(file.read(size).decode("latin-1"))
    file.seek(0)


def read_text(path: str | Path, most: int = LARGEST_OPTION, encoding: str = "utf-8") -> str:
    """The same as text. UnicodeDecodeError when it is not text in this encoding."""
    return read_bounded(path, most).decode(encoding)


def key_in(path: str, option: str) -> str:
    """The key on the first line of the file that *option* names. InputError without a usable one."""
    where = f"{option} {path}"
    try:
        key = (read_text(path, LARGEST_KEY_FILE).splitlines() or [""])[0].strip()
    except OSError as error:
        raise InputError("file-unreadable", f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError("api-key-invalid", f"{where} is not text; put the key on its first line") from None
    return usable_key(key, where)


def usable_key(key: str, where: str) -> str:
    if key == "" or any(not 33 <= ord(letter) <= 126 for letter in key):
        raise InputError(
            "api-key-invalid", f"{where} has no usable key: it is empty or has characters that no header may carry"
        )
    return key


def parse_toml(text: str) -> dict[str, Any]:
    """ValueError when *text* is not TOML or is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def parse_json(data: bytes | str) -> Any:
    """msgspec.DecodeError when *data* is not JSON or is nested too deeply."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except UnicodeDecodeError as problem:
        raise msgspec.DecodeError(str(problem)) from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that atomically replaces *path* when the block ends without error. An existing file or link is replaced,
    not followed. OSError with a reason when *path* is anything else: a pipe, a device, a folder.
    """
    refuse_irregular(path)
    part = path.with_name(f"{path.name}.part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(part, flags, 0o666), "wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def replace_with(path: Path, data: bytes | str) -> None:
    with replacing(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


def refuse_irregular(path: Path) -> None:
    """OSError with a reason when *path* exists and is neither a file nor a link."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.EINVAL, "it is a folder" if stat.S_ISDIR(mode) else NOT_REGULAR, str(path))


def is_stream(path: Path) -> bool:
    """Whether *path*, which an option names for output, is a stream: a pipe, a character device such as /dev/null, or
    our standard output under one of its names. OSError with a reason when it cannot be written to.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    odd = {stat.S_IFDIR: "it is a folder", stat.S_IFSOCK: "it is a socket", stat.S_IFBLK: "it is a disk"}
    if (what := odd.get(stat.S_IFMT(mode))) is not None:
        raise OSError(errno.EINVAL, what, str(path))
    return not stat.S_ISREG(mode) or standard_output(path) is not None


def standard_output(path: Path) -> int | None:
    """Descriptor of the standard output or error that the link *path* leads to, as /dev/stdout does."""
    return next((one for one in (1, 2) if path.is_symlink() and os.path.samestat(path.stat(), os.fstat(one))), None)


def writable(path: Path) -> int:
    """Descriptor of the file *path* that an option names, truncated or created; of a stream, the stream itself. OSError
    with a reason when it cannot be written to, or when no process opens the pipe for reading within READER_S.
    """
    streams = is_stream(path)
    if streams and (ours := standard_output(path)) is not None:  # after what has been printed, before what follows
        sys.stdout.flush()
        return os.dup(ours)
    if streams and path.is_fifo():
        return pipe_into(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC, 0o666)


def pipe_into(path: Path) -> int:
    """Open the named pipe *path* for writing. OSError when no process opens it for reading within READER_S."""
    until = time.monotonic() + READER_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as problem:
            if problem.errno != errno.ENXIO:
                raise
        else:
            os.set_blocking(descriptor, True)
            return descriptor
        if time.monotonic() > until:
            reason = f"it is a pipe, and no process opened it for reading within {READER_S:g} s"
            raise OSError(errno.EINVAL, reason, str(path))
        time.sleep(0.01)


def writing(path: Path) -> BinaryIO:
    """Open the file that an option names for writing, as `writable`."""
    return open(writable(path), "wb")


def write_named(path: Path, text: str) -> None:
    with writing(path) as file:
        file.write(text.encode("utf-8"))
