"""A child for tests of the supervisor, told by its first argument how to behave. Standard library only: it starts fast.

It does what the real child may never do: ignore orders, write rubbish, close its pipes, leave children behind.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time


def report(**report):
    os.write(1, json.dumps(report).encode() + b"\n")


def status(name, **more):
    report(type="StatusReport", status={"type": name, **more})


def generate(order, cancelled):
    words = order["params"]["messages"][-1]["content"].split() if order["params"] else ["0"]
    task_id, count = order["task_id"], float("inf") if words[-1] == "forever" else int(words[-1])
    done = 0
    while done < count and task_id not in cancelled:
        report(type="Step", texts=[{"task_id": task_id, "text": f"{done} "}], tokens=1)
        done += 1
        time.sleep(0.001)
    reason = "cancelled" if task_id in cancelled else "stop"
    report(type="Done", task_id=task_id, reason=reason, usage={"tokens": done})


def obey(order, cancelled, ignore_stop=False):
    match order["type"]:
        case "Assign":
            status("RunnerIdle")
        case "Connect":
            status("RunnerConnecting")
            status("RunnerConnected")
        case "Load":
            status("RunnerLoading", layers_loaded=0, total_layers=1)
            status("RunnerLoaded")
        case "Warmup":
            status("RunnerWarmingUp")
            status("RunnerReady")
        case "Generate":
            threading.Thread(target=generate, args=(order, cancelled), daemon=True).start()
        case "Cancel":
            cancelled.add(order["task_id"])
        case "Stop" if not ignore_stop:
            status("RunnerShuttingDown")
            status("RunnerShutdown")
            os._exit(0)


def obedient(ignore_stop=False):
    cancelled = set()
    for line in sys.stdin:
        obey(json.loads(line), cancelled, ignore_stop)
    os._exit(0)


def stop_deaf():
    obedient(ignore_stop=True)


def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    obedient(ignore_stop=True)


def never_reads():
    status("RunnerIdle")
    time.sleep(60)


def garbage():
    status("RunnerIdle")
    os.write(1, b"Loading weights: 100%\n")
    time.sleep(60)


def overlong():
    for _ in range(17):
        os.write(1, b"x" * (1 << 20))
    time.sleep(60)


def flood():
    for at in range(20000):
        report(type="Step", texts=[{"task_id": "t", "text": str(at)}], tokens=1)
    obedient()


def last_words():
    status("RunnerIdle")
    status("RunnerLoading", layers_loaded=0, total_layers=1)
    for at in range(1, 31):
        print(f"line {at}\x1b[31m", file=sys.stderr)
    print("MemoryError: no room", file=sys.stderr)
    sys.exit(3)


def chatty():
    for at in range(30000):
        sys.stderr.write(f"{at:06d} {'.' * 93}\n")
    sys.stderr.flush()
    obedient()


def fails():
    status("RunnerIdle")
    status("RunnerFailed", error_message="no such file")
    report(type="Memory", resident_bytes=1)
    sys.exit(1)


def fails_and_stays():
    status("RunnerFailed", error_message="no such file", phase="RunnerLoading")
    time.sleep(60)


def quits():
    status("RunnerShutdown")


def mute():
    status("RunnerIdle")
    os.close(1)
    time.sleep(60)


def half_a_line():
    status("RunnerIdle")
    os.write(1, b'{"type":"Step","tex')
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_a_child():
    status("RunnerIdle")
    subprocess.Popen(["sleep", "3"])
    report(type="Memory", resident_bytes=7)
    os._exit(3)


def surroundings():
    open_fds = []
    for fd in range(3, 256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        open_fds.append(fd)
    facts = {
        "session": os.getsid(0),
        "pid": os.getpid(),
        "fds": open_fds,
        "threads": os.environ["OPENBLAS_NUM_THREADS"],
        "given": os.environ["GIVEN"],
    }
    report(type="Memory", resident_bytes=0, note=json.dumps(facts))
    obedient()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
