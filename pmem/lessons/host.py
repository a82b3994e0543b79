"""Lessons beside one session of a host: what it is told at its start, and what its deliveries propose.

    session = open_session(settings, folder=project)       # pmem.connect attends to it when the settings say `lessons: true`
    session.opening                                        # the block for the session's start, or None

Nothing here raises into the host, and nothing is written on its thread.
"""

import time
from pathlib import Path

from pmem.delivery import Delivered, Opening
from pmem.lessons.background import BackgroundWriter
from pmem.lessons.proposer import Proposer
from pmem.lessons.repository import repository_of
from pmem.lessons.session_start import Start, record_delivery, start_of
from pmem.session import MemorySession
from pmem.settings import Settings


class SessionLessons:
    """Hears a session from `attend` on."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._proposer: Proposer | None = None

    def attend(self, session: MemorySession) -> None:
        """Propose what the session delivers, and prepare what it is told. Later edits do not reach this session."""
        writer = BackgroundWriter(self._settings, session.say)
        self._proposer = Proposer(writer, repository_of(self._folder), session)
        start = start_of(self._settings, folder=self._folder, session=session.session_id, notice=session.say)
        if start.block:
            session.opening = Opening(start.block, lambda: _record(writer, start))
        elif start.cut:
            _record(writer, start)

    def on_delivered(self, event: Delivered) -> None:
        """A reminder reached the agent."""
        if self._proposer is not None:
            self._proposer.on_delivered(event)


def _record(writer: BackgroundWriter, start: Start) -> None:
    at = time.time()
    writer.put(lambda store: record_delivery(store, start, route="session_start", at=at))
