"""Two processes with one device each give, bit for bit, the losses of one process with two."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WORKER = HERE / "processes_worker.py"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(address: str, processes: int, process: int, devices: int) -> subprocess.Popen:
    """The worker with so many CPU devices of its own."""
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(WORKER), address, str(processes), str(process)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(workers: list[subprocess.Popen]) -> list[list[str]]:
    """Printed lines of each; all are ended, whatever happens."""
    try:
        results = [worker.communicate(timeout=300) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, errors) in zip(workers, results, strict=True):
        assert worker.returncode == 0, errors
    return [out.splitlines() for out, _ in results]


def losses(lines: list[str]) -> list[str]:
    return [line for line in lines if line[0].isdigit()]


@pytest.mark.slow
def test_two_processes_are_one():
    address = f"127.0.0.1:{free_port()}"
    first, second = lines_of([start(address, 2, process, 1) for process in range(2)])
    (alone,) = lines_of([start("", 1, 0, 2)])

    assert "devices 2 processes 2" in first
    assert "devices 2 processes 1" in alone
    assert len(losses(alone)) >= 3 * 5
    assert losses(first) == losses(alone)
    assert losses(second) == losses(alone)
    assert not any("nan" in line or "inf" in line for line in losses(alone))
    values = [line.split()[2] for line in losses(alone) if "total_loss" in line]
    assert len(set(values)) == 3
