"""What a checkpoint tells of the policy, the packages and the devices that it is from, and how others differ."""

import json
from types import SimpleNamespace

import jax
import pytest

from strl_jax.observations import Segments
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.run_folder.layout import check_layout, differences, layout, versions


def algorithm(**groups):
    segments = {name: Segments(tuple(parts), tuple(parts.values())) for name, parts in groups.items()}
    return SimpleNamespace(groups=segments, policy=SimpleNamespace(action_size=2))


def test_layout_is_json_and_equal_to_itself():
    current = layout(algorithm(actor={"lin": (3,), "scan": (4, 5)}, critic={"lin": (3,)}))
    assert current == {"groups": {"actor": {"lin": [3], "scan": [4, 5]}, "critic": {"lin": [3]}}, "action_size": 2}
    check_layout(json.loads(json.dumps(current)), current)


@pytest.mark.parametrize(
    ("groups", "lines"),
    [
        (
            {"actor": {"lin": (3,), "scan": (4, 6)}},
            ["observation group 'actor', component 'scan': shape (4, 5) in the checkpoint, shape (4, 6) now"],
        ),
        (
            {"actor": {"lin": (3,), "ang": (2,)}},
            [
                "observation group 'actor', component 'ang': absent in the checkpoint, shape (2,) now",
                "observation group 'actor', component 'scan': shape (4, 5) in the checkpoint, absent now",
            ],
        ),
        (
            {"actor": {"scan": (4, 5), "lin": (3,)}},
            ["observation group 'actor', order: lin, scan in the checkpoint, scan, lin now"],
        ),
        (
            {"critic": {"lin": (3,), "scan": (4, 5)}},
            [
                "observation group 'critic', component 'lin': absent in the checkpoint, shape (3,) now",
                "observation group 'critic', component 'scan': absent in the checkpoint, shape (4, 5) now",
                "observation group 'actor', component 'lin': shape (3,) in the checkpoint, absent now",
                "observation group 'actor', component 'scan': shape (4, 5) in the checkpoint, absent now",
            ],
        ),
    ],
)
def test_another_layout_is_named(groups, lines):
    saved = layout(algorithm(actor={"lin": (3,), "scan": (4, 5)}))
    with pytest.raises(CheckpointError) as caught:
        check_layout(saved, layout(algorithm(**groups)))
    assert str(caught.value).splitlines() == lines


def test_another_action_size_is_named():
    saved = layout(algorithm(actor={"lin": (3,)}))
    with pytest.raises(CheckpointError, match=r"^action size: 2 in the checkpoint, 12 now$"):
        check_layout(saved, saved | {"action_size": 12})


def test_versions_can_be_stored():
    found = json.loads(json.dumps(versions()))
    assert found["jax"] == jax.__version__
    assert found["platform"] == "cpu"
    assert found["device_count"] == jax.device_count()
    assert {"python", "strl_jax", "orbax-checkpoint", "mujoco-mjx"} <= found.keys()


def test_what_makes_a_resumed_run_differ():
    meta = {"versions": versions(), "shards": 4}
    assert differences(meta, 4) == []
    meta["versions"] |= {"jax": "0.1.0", "device_count": 99}
    assert differences(meta, 2) == [
        "saved on 4 shards, resumed on 2: not reproducible bit for bit",
        f"saved with jax 0.1.0, resumed with {jax.__version__}: the last bits may differ",
    ]
