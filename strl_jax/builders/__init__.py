"""From a config to what a run needs, in this order:

1. ``environment``: the environment, with episodes around it.
2. ``checks``: the algorithm fits the policy, the batch fits the devices.
3. ``policy``: the network with its encoders, estimators and memory.
4. ``acting``: observation groups, and an ``Algorithm`` of PPO with the policy; this is enough to act.
5. ``algorithm``: what the config adds to PPO: a teacher, AMP, RND; reads the experts' states.
   It uses ``teacher`` and ``mutex`` (policies of other runs), with ``stored`` (checkpoints),
   ``torch_policy`` (torch files) and ``read_errors`` (their errors under the config's keys).
6. ``stored`` for a resumed run, ``transfer`` for one that starts from another run's policy.
"""
