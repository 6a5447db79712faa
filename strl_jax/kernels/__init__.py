"""Kernels: a function of one environment is compiled into one kernel over all environments.

XLA compiles the physics of a robot to about a thousand small kernels for each step, which leave most of a GPU idle.
Here ``trace`` turns the function's jaxpr into a ``graph`` of scalar operations: constants are folded, ``x * 0`` and
equal operations vanish, loops stay loops. ``schedule`` puts the operations in order, ``source`` writes them as C++ that
two headers give a meaning: ``cuda.h`` for one environment a thread, ``simd.h`` for one environment a lane of a vector.
``cuda`` compiles it with NVRTC, ``cpu`` with the system's compiler; both store the result beside XLA's cache.
``fuse.fuse`` is the function for users.
"""
