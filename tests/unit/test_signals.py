"""A first signal sets a flag, a second one ends the process, whatever the main thread does."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from strl_jax.runners.stop import SIGNALS, StopFlag

# The main thread is inside one long call that needs no interpreter, as it is while XLA compiles.
DEAF = """
import hashlib
from strl_jax.runners.stop import StopFlag
with StopFlag():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)
"""


def wait_for(flag: StopFlag) -> None:
    deadline = time.monotonic() + 10.0
    while flag.name is None and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_sets_the_flag(number, capfd):
    handlers = [signal.getsignal(each) for each in SIGNALS]
    with StopFlag() as flag:
        assert flag.name is None
        os.kill(os.getpid(), number)
        wait_for(flag)
        assert flag.name == signal.Signals(number).name
    assert [signal.getsignal(each) for each in SIGNALS] == handlers
    assert re.fullmatch(f"{flag.name}: stops after this iteration; .*exits at once\n", capfd.readouterr().err)


def test_other_signals_and_threads_are_left_alone():
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    with StopFlag() as flag:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
        assert flag.name is None
    signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]

    handlers = []

    def in_a_thread():
        with StopFlag() as other:
            handlers.append((signal.getsignal(signal.SIGTERM), other.name))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert handlers == [(signal.getsignal(signal.SIGTERM), None)]


def test_threads_end_and_pipes_are_closed():
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with StopFlag():
            assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_second_signal_exits_at_once(first, second):
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(first)
        assert "exits at once" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(second)
        assert process.wait(10) == 128 + second
    finally:
        process.kill()
        process.communicate()
