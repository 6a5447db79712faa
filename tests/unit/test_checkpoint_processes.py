"""Checkpoints of processes that meet a full disk, are killed, or write together."""

import os
import re
import signal
import socket
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import pytest
from saved_states import raw, restored

from strl_jax.run_folder.checkpoints import Checkpointer

FULL_DISK = """
import resource, signal, sys, jax.numpy as jnp
from strl_jax.runners import launch
from strl_jax.run_folder.checkpoints import Checkpointer

def command():
    run = Checkpointer(sys.argv[1])
    state = {"train": {f"w{i}": jnp.full((64, 64), float(i)) for i in range(8)}}
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # a longer file cannot be written, as on a full disk
    run.save("last", 1, state, {})
    run.wait()

sys.exit(launch.guarded(command, ""))
"""


@pytest.mark.slow
def test_a_full_disk_is_one_line(tmp_path):
    """Orbax logs a page for each of its threads, TensorStore prints a trace for each file."""
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"error: {tmp_path}/checkpoints/last: saving failed: .+\n", done.stderr), done.stderr


SAVE_FOREVER = """
import sys, jax.numpy as jnp
from strl_jax.run_folder.checkpoints import Checkpointer
run = Checkpointer(sys.argv[1])
start = run.latest("last") or 0
for i in range(start + 1, start + 100_000):
    run.save("last", i, {"train": {"w": jnp.full((128, 128), float(i)), "i": jnp.int32(i)}}, {"i": i})
    if i == start + 3:
        print("going", flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_checkpoint_that_restores(tmp_path):
    target = {"train": {"w": jnp.zeros((128, 128)), "i": jnp.int32(0)}}
    newest = 0
    for extra in (0.0, 0.05, 0.13):
        with subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, str(tmp_path)],
            env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla")},  # a kill may leave half a file
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout.readline() == b"going\n", process.stderr.read()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(extra)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert process.stderr.read() == b""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            iteration, state, meta = restored(Checkpointer(tmp_path), target)
        assert iteration >= newest + 2
        assert meta == {"i": iteration}
        assert int(state["train"]["i"]) == iteration
        assert bool((state["train"]["w"] == iteration).all())
        newest = iteration


TWO_PROCESSES = """
import sys
import jax
jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
import jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from strl_jax.run_folder.checkpoints import Checkpointer
mesh = Mesh(np.asarray(jax.devices()), ("env",))
def build(x):
    keys = jax.random.split(jax.random.key(1), 4)
    return {"train": {"w": jnp.full(3, x)}, "rollout": {"q": x + jnp.arange(4.0), "e": jnp.zeros((4, 0)), "key": keys}}
specs = {"train": NamedSharding(mesh, P()), "rollout": NamedSharding(mesh, P("env"))}
build = jax.jit(build, out_shardings=specs)
run = Checkpointer(sys.argv[1])
for i in range(1, 4):
    run.save("last", i, build(float(i)), {"i": i})
    run.save("numbered", i, {"train": build(float(i))["train"]}, {"i": i})
run.save("last", 3, build(9.0), {"i": 9})
def read(kind, i):
    return run.restore(kind, i, build(0.0)), run.read_meta(kind, i)
_, i, (state, meta) = run.read_first_intact(run.candidates(("last",)), read)
assert (i, meta) == (3, {"i": 3})
same = jax.jit(lambda a, b: jnp.all(a["rollout"]["q"] == b["rollout"]["q"]), out_shardings=specs["train"])
assert bool(same(state, build(3.0)))
assert state["rollout"]["key"].sharding == specs["rollout"]
run.close()
"""


@pytest.mark.slow
def test_two_processes_write_what_one_reads(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    command = [sys.executable, "-c", TWO_PROCESSES, str(tmp_path), f"127.0.0.1:{port}"]
    running = [subprocess.Popen([*command, str(i)], env=env, stderr=subprocess.PIPE, text=True) for i in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    run = Checkpointer(tmp_path)
    assert (run.iterations("last"), run.iterations("numbered")) == ([2, 3], [1, 2, 3])
    target = {
        "train": {"w": jnp.zeros(3)},
        "rollout": {"q": jnp.zeros(4), "e": jnp.zeros((4, 0)), "key": jax.random.split(jax.random.key(0), 4)},
    }
    state = run.restore("last", 3, target)
    assert state["rollout"]["q"].tolist() == [3.0, 4.0, 5.0, 6.0]  # 3 + [0, 1, 2, 3]
    assert raw(state["rollout"]["key"]) == raw(jax.random.split(jax.random.key(1), 4))
