"""Which repository a folder belongs to: the canonical path of the nearest folder above that holds `.git`."""

from pathlib import Path


def repository_of(folder: Path) -> str | None:
    """The canonical path of the repository around `folder`, or None outside of one. Links are resolved; no process is started."""
    try:
        place = Path(folder).resolve()
        for candidate in (place, *place.parents):
            if (candidate / ".git").exists():
                return str(candidate)
    except OSError:
        return None
    return None
