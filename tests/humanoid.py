"""A small humanoid as MJCF, with the traits of real robots' files.

Its visual meshes reach below the feet. A foot has two geoms. It has arms and a waist. Its motors limit the torque by
the range of their controls and their gear. A keyframe has the pose.
"""

from pathlib import Path

LEG = """
<body name="{side}_thigh" pos="0 {y} -0.08">
  <joint name="{side}_hip" axis="0 1 0" range="-1.5 1.5" armature="0.02"/>
  <geom name="{side}_thigh" type="capsule" size="0.04" fromto="0 0 0 0 0 -0.3" mass="2"/>
  <body name="{side}_shin" pos="0 0 -0.3">
    <joint name="{side}_knee" axis="0 1 0" range="0 2.5" armature="0.02"/>
    <geom name="{side}_shin" type="cylinder" size="0.03 0.12" pos="0 0 -0.14" mass="1.5"/>
    <geom name="{side}_cover" class="visual" type="mesh" mesh="cover" pos="0 0 -0.2"/>
    <body name="{side}_sole" pos="0 0 -0.3">
      <joint name="{side}_ankle" axis="0 1 0" range="-1 1" armature="0.02"/>
      <geom name="{side}_heel" type="capsule" size="0.02" fromto="-0.06 -0.03 -0.03 -0.06 0.03 -0.03" mass="0.2"/>
      <geom name="{side}_toe" type="capsule" size="0.02" fromto="0.1 -0.03 -0.03 0.1 0.03 -0.03" mass="0.2"/>
      <geom class="visual" type="mesh" mesh="cover"/>
    </body>
  </body>
</body>
"""
ARM = """
<body name="{side}_arm" pos="0 {y} 0.2">
  <joint name="{side}_shoulder" axis="0 1 0" range="-2 2" armature="0.02"/>
  <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.3" mass="1"/>
</body>
"""
HUMANOID = f"""
<mujoco>
  <compiler angle="radian"/>
  <default>
    <default class="visual"><geom contype="0" conaffinity="0" group="2" mass="0"/></default>
  </default>
  <asset>
    <!-- a box of 0.1 m x 0.06 m x 0.24 m: as a part of a foot, it reaches 7 cm below the ground -->
    <mesh name="cover" vertex="-0.05 -0.03 -0.12  0.05 -0.03 -0.12  -0.05 0.03 -0.12  0.05 0.03 -0.12
                               -0.05 -0.03  0.12  0.05 -0.03  0.12  -0.05 0.03  0.12  0.05 0.03  0.12"/>
  </asset>
  <worldbody>
    <body name="pelvis" pos="0 0 0.75">
      <freejoint name="root"/>
      <geom name="pelvis" type="box" size="0.08 0.12 0.05" mass="5"/>
      {LEG.format(side="left", y=0.1)}
      {LEG.format(side="right", y=-0.1)}
      <body name="torso" pos="0 0 0.1">
        <joint name="waist" axis="0 0 1" range="-1 1" armature="0.02"/>
        <geom name="torso" type="ellipsoid" size="0.08 0.12 0.2" pos="0 0 0.15" mass="5"/>
        {ARM.format(side="left", y=0.18)}
        {ARM.format(side="right", y=-0.18)}
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="left_hip" gear="2" ctrlrange="-30 30"/>
    <motor joint="left_knee" gear="2" ctrlrange="-40 40"/>
    <motor joint="left_ankle" ctrlrange="-20 20"/>
    <motor joint="right_hip" gear="2" ctrlrange="-30 30"/>
    <motor joint="right_knee" gear="2" ctrlrange="-40 40"/>
    <motor joint="right_ankle" ctrlrange="-20 20"/>
  </actuator>
  <keyframe>
    <key name="low" qpos="0 0 0.5 1 0 0 0 -0.6 1.2 -0.6 -0.6 1.2 -0.6 0 0.5 0.5"/>
    <key name="bent" qpos="0 0 0.7 1 0 0 0 -0.3 0.6 -0.3 -0.3 0.6 -0.3 0 0.5 0.4"/>
  </keyframe>
</mujoco>
"""
LEGS = tuple(f"{side}_{joint}" for side in ("left", "right") for joint in ("hip", "knee", "ankle"))


def write(folder: Path, *changes: tuple[str, str]) -> str:
    """Writes the file, with each ``(old, new)`` of ``changes`` replaced; ``old`` must occur. Returns its path."""
    text = HUMANOID
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "humanoid.xml"
    path.write_text(text)
    return str(path)
