"""The separate duties of a training loop: time accounting, logging, evaluation, saving and the time split."""
