"""Foreign events: what the public system (exo-explore/exo) records, in our own events.

Its logs have neither times nor authors, and an index is a position. `KINDS` says of each kind of event that it knows
(version 0.3.70) whether it is kept, mapped to one of ours, or only counted; the rest is unknown. What a kind does to
the state is told by its own reducer (its `apply.py`), and copied here as far as runners, instances, downloads, tasks
and nodes go.
"""
