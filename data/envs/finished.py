"""What a final check can look at: the files that came out, a SQLite database among them, a git repository, or a command's output.

SQLite files are read by SQLite itself from memory, git objects from git's own files: a check costs no process unless it asks for
one.
"""

import re
import sqlite3
import zlib
from dataclasses import dataclass, field

from data.envs.filestate import FileState
from data.sandbox import Sandbox


@dataclass(slots=True)
class Finished:
    """The end of a run. Absent files are empty text; a broken database or query is the text of its error."""

    state: FileState
    sandbox: Sandbox | None = None
    _databases: dict[str, sqlite3.Connection] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """A file's text without the final newline."""
        return (self.state.text(path) or "").rstrip("\n")

    def sql(self, path: str, query: str) -> str:
        """The first column of the first row, as text; empty without rows."""
        try:
            row = self._database(path).execute(query).fetchone()
        except sqlite3.Error as error:
            return f"error: {error}"
        return "" if row is None or row[0] is None else str(row[0])

    def git_ref(self, name: str) -> str:
        """The object a ref such as `tags/v1` names; empty when there is none."""
        return self.text(f".git/refs/{name}")

    def git_object(self, name: str) -> str:
        """A commit, tag or blob as git prints it, without its header line; empty when there is none."""
        entry = self.state.entries.get(f".git/objects/{name[:2]}/{name[2:]}")
        return zlib.decompress(entry.content).partition(b"\0")[2].decode("utf-8", "replace") if entry else ""

    def git_tree_blob(self, commit: str) -> str:
        """The content of the first file in a commit's tree: the note, for a notes commit."""
        tree = re.match(r"tree (\w{40})", self.git_object(commit))
        entry = self.state.entries.get(f".git/objects/{tree[1][:2]}/{tree[1][2:]}") if tree else None
        if entry is None:
            return ""
        body = zlib.decompress(entry.content).partition(b"\0")[2]
        return self.git_object(body.partition(b"\0")[2][:20].hex()).strip()

    def git_subjects(self, name: str) -> list[str]:
        """First lines of the commit messages reachable from a ref by first parents, newest first."""
        found, commit = [], self.git_ref(name)
        while commit and (text := self.git_object(commit)):
            head, _, message = text.partition("\n\n")
            found.append(message.partition("\n")[0])
            parent = re.search(r"^parent (\w{40})", head, re.MULTILINE)
            commit = parent[1] if parent else ""
        return found

    def output(self, command: str) -> str:
        """Really run a command on the files as they are; its output, stripped."""
        assert self.sandbox is not None
        return self.sandbox.run(command).text.strip()

    def _database(self, path: str) -> sqlite3.Connection:
        if path not in self._databases:
            entry = self.state.entries.get(path)
            connection = self._databases[path] = sqlite3.connect(":memory:")
            if entry is not None:
                connection.deserialize(entry.content)
        return self._databases[path]
