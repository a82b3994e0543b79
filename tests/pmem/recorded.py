"""A recorded rollout with every part of the runtime: a repeated failure, a compaction, a parallel batch, an aborted turn."""

from typing import Any

from pmem.rollout import Agent, Event, Outcome, Rollout, Source

FAIL = "gcc -c a.c\na.c:3:5: error: expected ';'\nmake: *** [a.o] Error 1\n"


class Recorder:
    """Appends events with their numbers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, **values: Any) -> None:
        self.events.append(Event.model_validate({"i": len(self.events), "kind": kind, **values}))

    def call(self, command: str, text: str, *, error: bool = False, thought: str | None = None, **values: Any) -> None:
        call_id = f"c{len(self.events)}"
        if thought:
            self.add("thought", text=thought)
        self.add("tool_call", tool="bash", args={"command": command}, call_id=call_id)
        self.add("tool_result", text=text, is_error=error, call_id=call_id, **values)


def recorded() -> Rollout:
    tape = Recorder()
    tape.add("user", text="Build a.o and write out/report.json as JSON.")
    tape.call("make a.o", FAIL, error=True, thought="Now make. Next: make again.")
    tape.call("ls", "a.c\nMakefile\n")
    tape.call("make a.o", FAIL, error=True, thought="Now make again. Next: give up.")
    tape.call("sed -i 's/x/x;/' a.c", "")
    tape.call("make a.o", "built\n")
    tape.add("assistant", text="Built it.")
    tape.add("turn_end")
    tape.add("user", text="Memory speaking", own_reminder=True)
    tape.add("compaction")
    tape.add("user", text="Now the report.")
    for number in (1, 2):
        tape.add("tool_call", tool="bash", args={"command": f"cat {number}"}, call_id=f"p{number}", batch_id="b1")
    tape.add("tool_result", text="two", call_id="p2", batch_id="b1")
    tape.add("tool_result", text="one", call_id="p1", batch_id="b1")
    tape.add("loop_signal")
    tape.add("turn_end", error_kind="aborted")
    return Rollout(
        task_id="build/1",
        family="build",
        split_key="build/1",
        agent=Agent(name="recorded"),
        source=Source(name="test"),
        outcome=Outcome(success=True),
        events=tape.events,
    ).with_id()
