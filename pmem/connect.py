"""A session with everything the settings ask for: the model tier behind its routes, telemetry in the state folder.

    session = open_session()                          # settings as `load_settings` finds them
    session = open_session(settings, notice=print)    # hears which route serves instead, and why

`MemorySession` itself takes its parts as they are given and touches nothing; this is where settings become parts.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pmem.delivery import Delivered
from pmem.session import MemorySession
from pmem.settings import Settings, load_settings
from pmem.telemetry import FileTelemetry, Telemetry

if TYPE_CHECKING:
    from pmem.lessons.host import SessionLessons


def open_session(
    settings: Settings | None = None, *, on_delivered: Callable[[Delivered], None] | None = None,
    notice: Callable[[str], None] | None = None, session_id: str | None = None, clock: Callable[[], float] = time.time,
    also: Telemetry | None = None, folder: Path | None = None,
) -> MemorySession:  # fmt: skip
    """A session of this process. The settings in force now are its own: later changes do not reach it. `also`: a further sink.
    `folder`: where the agent works, which decides whose lessons count (default: the current folder).

    Raises UserError for settings that cannot work (unknown key, unreadable key file, a threshold of another model): a mistake is
    said at the start, not in the middle of a run. Disabled: nothing is resolved, read or written.
    """
    settings = settings or load_settings()
    if not settings.enabled:
        return MemorySession(settings, session_id=session_id, clock=clock)
    sinks = _sinks(settings, also)
    lessons = _lessons(settings, folder)
    hears = _heard_by(getattr(sinks, "delivered", None), lessons.on_delivered if lessons else None, on_delivered)
    session = MemorySession(settings, telemetry=sinks, on_delivered=hears, session_id=session_id, clock=clock, notice=notice)
    if settings.route is not None:
        from pmem.router import build_policy

        session.use_policy(build_policy(settings, notice=session.say))
    if lessons is not None:
        lessons.attend(session)
    return session


def _sinks(settings: Settings, also: Telemetry | None) -> Telemetry | None:
    """Where this session's rows go."""
    sinks: list[Telemetry] = [FileTelemetry(settings)] if settings.telemetry else []
    sinks += [also] if also is not None else []
    if settings.otel or settings.prometheus or len(sinks) > 1:
        from pmem.observability import Fanout, OtelTelemetry, PrometheusTelemetry

        sinks += [OtelTelemetry()] if settings.otel else []
        sinks += [PrometheusTelemetry()] if settings.prometheus else []
        return Fanout(sinks)
    return sinks[0] if sinks else None


def _lessons(settings: Settings, folder: Path | None) -> "SessionLessons | None":
    """Lessons, when a person switched them on."""
    if not settings.lessons:
        return None
    from pmem.lessons.host import SessionLessons

    return SessionLessons(settings, folder or Path())


def _heard_by(*hearers: Callable[[Delivered], None] | None) -> Callable[[Delivered], None] | None:
    """Everybody who hears of a delivery: the sinks that count, the lessons, the host."""
    known = [hearer for hearer in hearers if hearer is not None]

    def told(event: Delivered) -> None:
        for hearer in known:
            hearer(event)

    return told if known else None
