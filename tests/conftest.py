"""Four CPU devices for every test: set before jax is imported, which reads the flag once."""

import os

FLAG = "--xla_force_host_platform_device_count=4"

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
