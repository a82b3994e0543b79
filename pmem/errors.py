"""A user's mistake is one clear sentence on standard error and exit code 2, never a traceback."""

import errno
import sys
from collections.abc import Callable
from types import TracebackType

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR})

_STOPPED = "stopped; run the same command again to go on where it stood"


class UserError(ValueError):
    """Bad input. The message is one sentence that names the file, line or key, and the mend."""


def exit_code(main: Callable[[], int | None]) -> int:
    """Run `main` and turn a `UserError`, a full disk or a missing permission into one sentence and exit code 2."""
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        place = f" ({error.filename})" if error.filename else ""
        mend = "free space or choose a folder that can be written" if error.errno in _UNWRITABLE else "mend it or name another"
        print(f"error: {error.strerror or error}{place}; {mend}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(_STOPPED, file=sys.stderr)
        return 130


def stop_quietly() -> None:
    """Ctrl-C while the modules of a command are still being imported is the same sentence. Commands only: it sets a hook."""

    def shown(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(_STOPPED, file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = shown
