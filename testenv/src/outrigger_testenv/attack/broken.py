"""A bound that did not hold."""


class Broken(RuntimeError):
    """A bound that did not hold; the message says which."""


class Late(Broken):
    """A bound of time that did not hold; the message says which."""
