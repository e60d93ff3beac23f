"""The numbers of a version, from all of its modules."""

import pickle

from own import eager

from . import relative


def loaded():
    """Those of modules that are imported before a run, and of a class that is unpickled."""
    from own.in_load import NUMBER

    unpickled = pickle.loads(b"cown.pickled\nPickled\n)\x81.")
    return [eager.NUMBER, relative.NUMBER, NUMBER, unpickled.number]


def scale(numbers):
    """The number with these digits, and with that of a module that is imported at a run."""
    import own.in_run

    return int("".join(map(str, [*numbers, own.in_run.NUMBER])))
