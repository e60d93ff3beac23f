"""The code of one version of a model, under names that no other version has.

A process of MLServer keeps modules by name. Versions whose modules have equal names would run the
code of one of them. So this module is a package of the version's own modules, which are imported as
parts of it. Their `import` statements mean modules of the version. A name in a pickle or a call of
`importlib` means the module of the version whose code runs.
"""

import builtins
import contextlib
import contextvars
import importlib
import logging
import os
import sys
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

_LOG = logging.getLogger("mlserver")
_HERE = os.path.dirname(os.path.abspath(__file__))
_PREFIX = __name__ + "."
# Modules that the version cannot have: this one, Python's, and those of its library in use.
_COMMON = {"__main__", __name__, *sys.builtin_module_names}
_COMMON |= sys.modules.keys() & set(getattr(sys, "stdlib_module_names", ()))
__path__ = [_HERE]


def _is_own(name, known={}):
    """True if Python would find a module in the version's directory first."""
    top = name.partition(".")[0]
    if top not in known:
        spec = None if top in _COMMON else PathFinder.find_spec(top, [_HERE, *sys.path])
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        known[top] = any(str(place).startswith(_HERE + os.sep) for place in places)
    return known[top]


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    """The `__import__` of the version's modules."""
    if level or not _is_own(name):
        return builtins.__import__(name, globals, locals, fromlist, level)
    importlib.import_module(_PREFIX + name)
    # Statements have a tuple. The reader of pickles has a list, and then looks for the plain name.
    if isinstance(fromlist, list):
        importlib.import_module(name)
    if not fromlist:
        return sys.modules[_PREFIX + name.partition(".")[0]]
    return builtins.__import__(_PREFIX + name, globals, locals, fromlist)


def _running():
    """The version whose code runs, or for which an executor runs."""
    frame = sys._getframe(1)
    while frame is not None:
        module, part, _ = str(frame.f_globals.get("__name__")).partition(".")
        if part and module.startswith("outrigger_") and hasattr(sys.modules.get(module), "_LIVE"):
            return module
        frame = frame.f_back
    return _COMMONS.version.get()


class _Finder(MetaPathFinder, Loader):
    """Finds the version's modules: as parts of this one, with an `__import__` of their own, and by
    their plain names for the version's code.
    """

    def find_spec(self, name, path=None, target=None):
        if _is_own(name) and _running() == __name__:
            return ModuleSpec(name, self)
        spec = PathFinder.find_spec(name, path, target) if name.startswith(_PREFIX) else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                module.__builtins__ = {**vars(builtins), "__import__": _import}
                execute(module)

            spec.loader.exec_module = exec_module
        return spec

    def create_module(self, spec):
        importlib.import_module(_PREFIX + spec.name)
        return _Named(spec.name)

    def exec_module(self, module):
        pass


class _Named(types.ModuleType):
    """The modules that versions have by one name."""

    def __getattr__(self, attribute):
        try:
            module = importlib.import_module(f"{_running()}.{self.__name__}")
        except ImportError:
            text = f"no code runs of a model that has the module {self.__name__}"
            raise AttributeError(text) from None
        return getattr(module, attribute)


def _submit(executor, call, /, *arguments, **named):
    """Has an executor run a call for the same version as its caller."""
    if _COMMONS.version.get() is not None:
        arguments, call = (call, *arguments), contextvars.copy_context().run
    return _COMMONS.submit(executor, call, *arguments, **named)


def _release():
    """Lets the version's code go with its last model."""
    _LIVE.pop()
    if not _LIVE:
        for name in [name for name in sys.modules if name.startswith(_PREFIX)]:
            globals().pop(name[len(_PREFIX) :], None)
            del sys.modules[name]
        globals().pop("OutriggerModel", None)


def _compare_requirements():
    """Logs the requirements of the model that the server's packages do not meet."""
    from importlib import metadata

    from packaging.requirements import Requirement

    with open(os.path.join(_HERE, "requirements.txt"), encoding="utf-8") as file:
        lines = [line.partition(" #")[0].strip() for line in file]
    for line in lines:
        with contextlib.suppress(ValueError):
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate():
                has = [it.version for it in metadata.distributions(name=wanted.name)][:1]
                if not has or not wanted.specifier.contains(has[0], prereleases=True):
                    text = "requirements.txt of %s names %s, and the server has %s"
                    _LOG.warning(text, _HERE, line, has[0] if has else "no such package")


_COMMONS = sys.modules.setdefault("outrigger_commons", types.ModuleType("outrigger_commons"))
if not hasattr(_COMMONS, "version"):
    _COMMONS.version = contextvars.ContextVar("version", default=None)
    _COMMONS.submit, ThreadPoolExecutor.submit = ThreadPoolExecutor.submit, _submit

# The server executes this module again for each load.
if "_LIVE" not in globals():
    _LIVE = []
    with contextlib.suppress(ImportError, OSError, ValueError):
        _compare_requirements()
    sys.meta_path.insert(0, _Finder())

_module, _, _class = IMPLEMENTATION.replace(":", ".").rpartition(".")
_module = importlib.import_module(_PREFIX + _module if _is_own(_module) else _module)


class OutriggerModel(getattr(_module, _class)):
    """The model."""

    def __init__(self, *arguments, **named):
        _LIVE.append(None)
        weakref.finalize(self, _release).atexit = False
        super().__init__(*arguments, **named)

    async def load(self):
        token = _COMMONS.version.set(__name__)
        try:
            return await super().load()
        finally:
            _COMMONS.version.reset(token)
