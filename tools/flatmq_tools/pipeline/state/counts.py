"""The counts of a boot: starts, what is lost, and what nobody heard."""

from __future__ import annotations

import numpy as np

from ..jobs.limits import FAR, MOST
from .groups import Ints
from .values import UNKNOWN


def counts(boots: dict[str, Ints], boot: Ints) -> tuple[Ints, Ints, Ints]:
    """Return starts, lost and unheard of boots.

    Whoever heard an earlier boot was there when this one began, with number 1.
    """
    before = boots["before"]
    known = before != UNKNOWN
    step = boot - np.where(known, before, 0)
    begun = np.where(known, np.where(step > FAR, 1, step), 0)
    head = np.maximum(boots["lowest"] - 1, 0)
    missing = boots["highest"] - boots["lowest"] - (boots["received"] - 1)
    lost = np.minimum(missing, MOST) + np.where(begun > 0, np.minimum(head, MOST), 0)
    unheard = np.where(begun > 0, 0, np.minimum(head, MOST))
    return begun, np.maximum(lost, 0), unheard
