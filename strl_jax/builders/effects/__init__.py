"""Keys that a config sets without effect: ``rules`` prints a line for each; ``policy``, ``teacher`` and ``legged``
have the keys of these sections, ``torch_arguments`` those of torch's optimisers, schedulers and losses.
"""
