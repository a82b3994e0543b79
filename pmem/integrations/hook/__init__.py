"""Memory beside agents that call a command for each event (Claude Code, Codex): `pmem hook`.

client.py        what the agent runs: builtin modules only, one deadline, always exit 0
daemon.py        one process a user and project that holds the sessions behind a Unix socket
dialects.py      each client's events in, its answers out
conversation.py  one client session: events become calls of its `MemorySession`
transcript.py    what the agent said, from the transcript the client writes
claims.py        an event told twice is taken once
shadow.py        what would have been said, while nothing is
install.py, doctor.py, command.py: `pmem hook install | doctor | run | daemon`
"""
