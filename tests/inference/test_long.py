"""What shows only after many requests."""

import psutil
import pytest

from exo_cli.engine.runner.frames import Cancel
from tests.inference.tiny import CONTEXT, LAYERS, write_model
from tests.runner.a_child import Child

CHATS = 500
ROOM_BYTES = 24 << 20


@pytest.mark.accept
@pytest.mark.timeout(1800)
def test_memory_stays_where_it_is_over_many_chats(tmp_path):
    """500 prompts of 400 tokens, none like another, each fifth of them cancelled on the way."""
    with Child() as child:
        child.make_ready(model=write_model(tmp_path / "m", "llama"), layers=LAYERS, context=CONTEXT)
        process, held = psutil.Process(child.pid), []
        for number in range(CHATS):
            child.ask(f"t-{number}", f"{number:06d}" + "x" * 374, temperature=1, max_tokens=12)
            if number % 5 == 0:
                child.until(lambda report: report.type == "Step")
                child.send(Cancel(task_id=f"t-{number}"))
            child.until_done(f"t-{number}")
            child.reports.clear()
            held.append(process.memory_info().rss)
        assert max(held[CHATS // 2 :]) - max(held[50:100]) < ROOM_BYTES
