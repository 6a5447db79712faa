"""Legged robots that follow velocity commands, on MuJoCo MJX. In reading order:

- ``env``: ``LeggedEnv``, the environment; ``config``, ``config_ground``, ``config_types``: its config.
- ``mjcf``, ``robot``: reads a model and prepares it for MJX, with ``names``, ``joints``, ``torque_limits``, ``parts``
  (feet and other bodies) and ``simplified``. ``default_pose``: a check of it. ``rotations``: quaternions.
- ``lowest``: the lowest points of shapes, from which contacts are computed.
- ``physics``: PD control, simulator steps and contacts of one environment. ``state``: the state of all environments.
- ``commands``, ``randomize``: random commands, properties of the robots and pushes.
- ``observations``, ``camera``, ``rewards``: what a policy observes and what a step is worth.
- ``terrain/``: the height field (``shapes``, ``heights``), its curriculum (``levels``), its obstacles, and
  ``ground``, which connects them to the environment.
"""
