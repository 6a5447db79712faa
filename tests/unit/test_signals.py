"""Signals: a first one sets a flag or ends a command, a second one ends the process, whatever the main thread does."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from strl_jax.runners import launch
from strl_jax.runners.process import ending_signals
from strl_jax.runners.signals import Interruption
from strl_jax.runners.stop import StopFlag

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

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


def test_a_signal_that_is_sent_twice_at_once_is_one(capfd):
    """``timeout`` sends its signal to the process and to its group."""
    with StopFlag() as flag:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        wait_for(flag)
        time.sleep(0.3)
    assert capfd.readouterr().err.count("SIGTERM") == 1


def test_nohup():
    assert ending_signals() == SIGNALS
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == (signal.SIGINT, signal.SIGTERM)
        with StopFlag() as flag, Interruption(""):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.3)
            assert flag.name is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_ends_with_one_line(number, capsys):
    handlers = [signal.getsignal(each) for each in SIGNALS]
    assert launch.guarded(lambda: os.kill(os.getpid(), number) or time.sleep(5) or 0, "stopped early") == 128 + number
    assert capsys.readouterr().err == "error: stopped early\n"
    assert [signal.getsignal(each) for each in SIGNALS] == handlers


def swallowed() -> int:
    """A library drops the exception, or makes another one of it."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except BaseException as error:
        if swallowed.raises:
            raise ValueError("callback failed") from error
    with StopFlag():
        raise AssertionError("the training starts")


@pytest.mark.parametrize("raises", [True, False])
def test_an_exception_that_gets_lost(raises, capsys):
    swallowed.raises = raises
    assert launch.guarded(swallowed, "stopped early") == 130
    assert capsys.readouterr().err == "error: stopped early\n"


# As DEAF, before the training; the exception would come after the call.
BUSY = """
import hashlib, sys
from strl_jax.runners import launch, process
def command():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)
process.leave(launch.guarded(command, "stopped early"))
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_long_call_is_ended(number):
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert process.stderr.read() == "error: stopped early\n"
    finally:
        process.kill()
        process.communicate()


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
