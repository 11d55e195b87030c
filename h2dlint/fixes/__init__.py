"""What to write instead of a copy that holds the host: builders that the rules share, one idea a file.

context.py   where a site stands: its statement, scope and text
places.py    where new statements can go
names.py     names that collide with nothing, torch's own name, imports
pinning.py   how this file spells "pinned"
guards.py    who else may write the buffer while the copy runs
calls.py     arguments of a call, added with LibCST
wrap.py      lines that became too long
rows.py staging.py joins.py allocations.py   the fixes
apply.py     edits into text
"""
