"""Consensus: who orders events, and from when on a record is committed.

One voter for now: the master commits what its own disk holds. Terms only grow; every term begins with a TermStarted
record. Records that are proposed but not durable yet are the tentative tail: the master decides on top of it and
answers, publishes and acts only from what is committed.
"""

from collections.abc import Iterable
from datetime import datetime

from exo_cli.engine.core.events import By, Event, Record


class Consensus:
    """The order of the log of one node: its term, its role, and the tail that is not durable yet."""

    def __init__(self, node_id: str, term: int, last_index: int) -> None:
        """Begin as a follower behind (term, last_index)."""
        self.node_id = node_id
        self.term = term
        self.is_master = False
        self.last_index = last_index
        self.tail: list[Record] = []

    def take_over(self) -> None:
        """Begin the next term as its master. With one voter nobody else has to agree."""
        self.term += 1
        self.is_master = True

    def propose(self, events: Iterable[Event], by: By, at: datetime, cause: int | None = None) -> list[Record]:
        """Give events their places at the end of the tail."""
        assert self.is_master, "only the master gives places to events"
        # As fine as it is written, so that who applies it now and who reads it later have the same state.
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
        records: list[Record] = []
        for event in events:
            self.last_index += 1
            records.append(Record(index=self.last_index, term=self.term, at=at, by=by, cause=cause, event=event))
        self.tail += records
        return records

    def accept(self, records: list[Record]) -> None:
        """Put records of the master at the end of the tail."""
        for record in records:
            assert record.index == self.last_index + 1, f"record {record.index} does not follow {self.last_index}"
            self.last_index = record.index
            self.term = max(self.term, record.term)
        self.tail += records

    def appended(self, upto: int) -> list[Record]:
        """The records that became durable, and with one voter committed."""
        done = [record for record in self.tail if record.index <= upto]
        self.tail = self.tail[len(done) :]
        return done

    def drop_tail(self) -> list[Record]:
        """The tail could not be written: take its places back."""
        lost, self.tail = self.tail, []
        self.last_index -= len(lost)
        return lost

    def adopt(self, term: int, last_index: int) -> None:
        """Follow another history from a snapshot on."""
        self.is_master = False
        self.term, self.last_index, self.tail = term, last_index, []
