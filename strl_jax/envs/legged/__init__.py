"""Legged robots that follow velocity commands, on MuJoCo MJX. In reading order:

- ``env``: ``LeggedEnv``, the environment; ``config``, ``config_ground``, ``config_types``: its config.
- ``mjcf``, ``robot``: reads a model and prepares it for MJX. ``rotations``: quaternions.
- ``physics``: PD control, simulator steps and contacts of one environment. ``state``: the state of all environments.
- ``commands``, ``randomize``: random commands, properties of the robots and pushes.
- ``observations``, ``camera``, ``rewards``: what a policy observes and what a step is worth.
- ``terrain/``: the height field (``shapes``, ``heights``), its curriculum (``levels``), its obstacles, and
  ``ground``, which connects them to the environment.
"""
