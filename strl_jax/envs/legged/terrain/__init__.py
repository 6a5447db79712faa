"""Terrain. In reading order: ``shapes``, ``heights``, ``levels``, ``obstacles``, ``ground``; see ``envs.legged``."""
