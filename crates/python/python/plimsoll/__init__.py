# SPDX-License-Identifier: Apache-2.0 OR MIT
"""CPU limits for Linux, simulated: the burst, bandwidth and scheduling rules of Plimsoll's policy.

``simulate`` runs one scenario, ``sweep`` many, on whatever maps a function over a list. ``read_trace``, ``replay`` and ``plan``
take what ``plimsoll record`` wrote. Tables are taken by pyarrow, polars and
others through the Arrow PyCapsule interface.
"""

import builtins

from ._plimsoll import (
    InputError,
    PanicError,
    Plan,
    Replay,
    RunError,
    Table,
    Trace,
    __version__,
    plan,
    read_trace,
    replay,
    run_point,
    simulate,
)

__all__ = [
    "InputError",
    "PanicError",
    "Plan",
    "Replay",
    "RunError",
    "Table",
    "Trace",
    "__version__",
    "plan",
    "read_trace",
    "replay",
    "run_point",
    "simulate",
    "sweep",
]

_KEYS = {"scenario", "set", "seed"}


def _run(point):
    return run_point(point["scenario"], point.get("set"), point.get("seed"))


def _run_batch(points):
    return [_run(point) for point in points]


def sweep(points, map=builtins.map, *, batch=1):
    """Runs every point and gives a table with a row for each, in their order.

    A point is a dict: ``scenario``, and where wanted ``set`` and ``seed``. ``map(function, list)`` gives the results in the order
    of the list; the function and what it gives can be pickled. With ``batch``, each entry of the list is so many points, which
    schedulers that take milliseconds for a task need. A run that cannot go on has the reason in the column ``error``.
    """
    points = list(points)
    if not points:
        raise ValueError("points: none; allowed: at least one")
    heads = {}
    for number, point in enumerate(points):
        unknown = set(point) - _KEYS
        if unknown or "scenario" not in point:
            wrong = f"unknown key {sorted(unknown)[0]!r}" if unknown else "no scenario"
            raise ValueError(f"points[{number}]: {wrong}; allowed: scenario (needed), set, seed")
        for key in point.get("set") or {}:
            heads[f"set.{key}"] = None
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch: {batch!r}; allowed: an int from 1 on")
    if batch == 1:
        rows = list(map(_run, points))
    else:
        batches = [points[start : start + batch] for start in range(0, len(points), batch)]
        rows = [row for rows in map(_run_batch, batches) for row in rows]
    if len(rows) != len(points):
        raise ValueError(f"map: {len(rows)} results for {len(points)} points; allowed: one for each")
    for number, (point, row) in enumerate(zip(points, rows)):
        wanted = {f"set.{key}": value for key, value in (point.get("set") or {}).items()}
        if point.get("seed") is not None:
            wanted["seed"] = point["seed"]
        if any(row.get(key) != value for key, value in wanted.items()):
            raise ValueError(f"map: result {number} is another point's; allowed: the order of the points")
    return Table.from_rows(rows, [*heads, "seed", "key"])
