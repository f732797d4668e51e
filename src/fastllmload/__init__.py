"""Load generator and measuring instrument for LLM serving; every report certifies the load generator itself.

Public is what `__all__` names, here and in the modules `metrics`, `settings` and `layout` (docs/python-api.md). All of it is
imported on first use, so that `import fastllmload` and `--help` stay instant.
"""

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # true to a type checker; to import it from `typing` would take longer than all the rest
if TYPE_CHECKING:
    from fastllmload import metrics, settings
    from fastllmload.api import (
        Comparison,
        FastLLMLoadError,
        HostLimitError,
        InputError,
        InternalError,
        Interrupted,
        Plan,
        Run,
        RunFolderError,
        SearchResult,
        TargetError,
        build_plan,
        compare,
        load,
        load_plan,
        read_settings,
        run,
        save_plan,
        search,
    )
    from fastllmload.records import layout

__all__ = [
    "Comparison", "FastLLMLoadError", "HostLimitError", "InputError", "InternalError", "Interrupted", "Plan", "Run",
    "RunFolderError", "SearchResult", "TargetError", "__version__", "build_plan", "compare", "layout", "load",
    "load_plan", "metrics", "read_settings", "run", "save_plan", "search", "settings",
]  # fmt: skip
__version__ = "0.1.0"
_MODULES = {
    "layout": "fastllmload.records.layout",
    "metrics": "fastllmload.metrics",
    "settings": "fastllmload.settings",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES.get(name, "fastllmload.api"))
    found: object = module if name in _MODULES else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps `compare` and `search` the functions: the import of the package of that name would replace them."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("compare", "search") or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
