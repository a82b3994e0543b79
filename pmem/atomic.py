"""Write beside, then rename: a reader sees the old file or the whole new one, never half of it."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; on success it replaces `path`, on any fault it is removed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is a device or a pipe, which a file must not replace", str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp-pmem", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename in (None, name):
            error.filename = str(path)  # the file that could not be written, not the one beside it
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8) in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
