"""What outlives a session: a store of lessons that a person governs. SQLite in one file, no import at the core's start.

records.py     what a record is: kinds, states, scope, provenance
schema.py      tables, versions, forward migrations
store.py       the file: open, read, search
changes.py     the one writer: every change with its history, and undo
curation.py    what a person does: approve, reject, edit, withdraw, delete, link
doors.py       how a record comes in: proposal, candidate review, remember, own entry, import
receipts.py    tool history, and its rendering for a completion check
proposer.py    the session's delivery event, queued to a background writer
session_start.py, selection.py, agents_file.py    the ways out
checkpoints.py, blobs.py, materialize.py           content-addressed files behind locators
merge.py       another store into this one, with report, backup and read-back
page/          the local page (extra `lessons`)
"""
