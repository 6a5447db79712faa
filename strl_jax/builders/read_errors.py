"""Errors of reading another run's policy, reported under the config key that names the run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from strl_jax.config import ConfigError
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.torch_files.file import TorchFileError


@contextmanager
def reported_under(key: str, path: str | Path | None = None, keys: Mapping[str, str] | None = None) -> Iterator[None]:
    """Raises errors of the block as ``ConfigError``, each line as ``KEY: PATH: line``.

    Args:
        path: what is read; a line that begins with it does not repeat it.
        keys: start of a line that already names a config key -> its replacement; such a line gets no ``KEY: PATH``.
    """
    prefix = key if path is None else f"{key}: {path}"
    try:
        yield
    except (ConfigError, CheckpointError, TorchFileError) as error:
        raise ConfigError(*(_line(line, prefix, path, keys or {}) for line in str(error).split("\n"))) from None


def _line(line: str, prefix: str, path: str | Path | None, keys: Mapping[str, str]) -> str:
    for start in () if path is None else (Path(path).absolute(), Path(path)):
        line = line.removeprefix(f"{start}: ").removeprefix(f"{start}/")
    for start, replacement in keys.items():
        if line.startswith(start):
            return replacement + line.removeprefix(start)
    return f"{prefix}: {line}"
