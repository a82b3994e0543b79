"""A session with everything the settings ask for: the model tier behind its routes, telemetry in the state folder.

    session = open_session()                          # settings as `load_settings` finds them
    session = open_session(settings, notice=print)    # hears which route serves instead, and why

`MemorySession` itself takes its parts as they are given and touches nothing; this is where settings become parts.
"""

import time
from collections.abc import Callable

from pmem.delivery import Delivered
from pmem.session import MemorySession
from pmem.settings import Settings, load_settings
from pmem.telemetry import FileTelemetry, Telemetry


def open_session(
    settings: Settings | None = None, *, on_delivered: Callable[[Delivered], None] | None = None,
    notice: Callable[[str], None] | None = None, session_id: str | None = None, clock: Callable[[], float] = time.time,
) -> MemorySession:  # fmt: skip
    """A session of this process. The settings in force now are its own: later changes do not reach it.

    Raises UserError for settings that cannot work (unknown key, unreadable key file, a threshold of another model): a mistake is
    said at the start, not in the middle of a run. Disabled: nothing is resolved, read or written.
    """
    settings = settings or load_settings()
    if not settings.enabled:
        return MemorySession(settings, session_id=session_id, clock=clock)
    sinks = _sinks(settings)
    session = MemorySession(
        settings, telemetry=sinks, on_delivered=_heard_by(on_delivered, sinks), session_id=session_id, clock=clock, notice=notice
    )
    if settings.route is not None:
        from pmem.router import build_policy

        session.use_policy(build_policy(settings, notice=session.say))
    return session


def _sinks(settings: Settings) -> Telemetry | None:
    """Where this session's rows go."""
    sinks: list[Telemetry] = [FileTelemetry(settings)] if settings.telemetry else []
    if settings.otel or settings.prometheus:
        from pmem.observability import Fanout, OtelTelemetry, PrometheusTelemetry

        sinks += [OtelTelemetry()] if settings.otel else []
        sinks += [PrometheusTelemetry()] if settings.prometheus else []
        return Fanout(sinks)
    return sinks[0] if sinks else None


def _heard_by(host: Callable[[Delivered], None] | None, sinks: Telemetry | None) -> Callable[[Delivered], None] | None:
    """The host's callback, and the sinks that count deliveries."""
    counting = getattr(sinks, "delivered", None)
    if host is None or counting is None:
        return host or counting

    def both(event: Delivered) -> None:
        counting(event)
        host(event)

    return both
