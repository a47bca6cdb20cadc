"""What every transport keeps to, said once: topics, how many answer at a time, when nobody is there, what failed.

An empty answer is no answer: it tells the asker that the handler failed. Real answers are JSON, which is never empty.
"""

import logging

from exo_cli.engine.ports import Handler

_log = logging.getLogger(__name__)

TOPICS = ("events", "gossip")
CONTROL_WORKERS = 32
DATA_WORKERS = 64  # long polls and chats hold one each for as long as they last

NOBODY_SECONDS = 2.0  # a node that is not connected by then is not there
FAILED = b""


async def answer(handler: Handler, question: bytes) -> bytes:
    """What the handler says, or FAILED when it raises: one bad request must not stop the others."""
    try:
        said = await handler(question)
    except Exception:
        _log.exception("a request of %d bytes was not answered: its handler raised", len(question))
        return FAILED
    if not said:
        _log.error("a request of %d bytes was not answered: its handler returned nothing", len(question))
    return said
