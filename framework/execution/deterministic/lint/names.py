"""Library members whose result may differ when they are called again, and the replacement for each."""

import functools
import random
import sys
from types import ModuleType

CLOCK = "self.ctx.now(), or the record's timestamp"
CHANCE = "self.ctx.random()"
IDENTIFIER = "self.ctx.uuid() (uuid.uuid5 is safe)"
PROCESS = "a constant, or a key of your own: another process has another one"
MACHINE = "a constant: another machine has another one"
OUTSIDE = "an input topic or a store: it may differ when it is asked again"
ENVIRONMENT = "a constant: the next start may have another value"
ZONE = "a time zone, such as datetime.UTC: another machine may be in another one"
ORDER = "one thread: which one is first is chance"
LIBRARY = "a constant set at import: what it changes for later records is lost at a restart"
UNREADABLE = "a name in the code: this check cannot follow it"
MEMORY = "a store: what is still in memory is chance"
TEXT = "a text of your own: this one holds paths and lines of the installation"

# All of a module, but for what is named behind it.
MODULES: dict[str, tuple[str, frozenset[str]]] = {
    "secrets": (CHANCE, frozenset({"compare_digest"})),
    "platform": (MACHINE, frozenset()),
    "socket": (OUTSIDE, frozenset({"htonl", "htons", "inet_aton", "inet_ntoa", "inet_ntop", "inet_pton", "ntohl"})),
    "subprocess": (OUTSIDE, frozenset()),
    "urllib.request": (OUTSIDE, frozenset()),
    "http.client": (OUTSIDE, frozenset()),
    "requests": (OUTSIDE, frozenset()),
    "httpx": (OUTSIDE, frozenset()),
    "aiohttp": (OUTSIDE, frozenset()),
    "urllib3": (OUTSIDE, frozenset()),
    "redis": (OUTSIDE, frozenset()),
    "psycopg": (OUTSIDE, frozenset()),
    "sqlite3": ("a store: a database is no part of a commit", frozenset({"Binary", "complete_statement"})),
    "asyncio": (ORDER, frozenset()),
    "multiprocessing": (ORDER, frozenset()),
    "concurrent.futures": (ORDER, frozenset()),
    "threading": (ORDER, frozenset({"Lock", "RLock"})),
    "tempfile": ("a name of your own: these are drawn at random", frozenset()),
    "glob": (OUTSIDE, frozenset({"escape", "translate"})),
    "shutil": (OUTSIDE, frozenset()),
    "locale": (MACHINE, frozenset()),
    "gc": (MEMORY, frozenset()),
    "weakref": (MEMORY, frozenset()),
    "contextvars": ("a store: a variable of the process is lost at a restart", frozenset()),
    "resource": (PROCESS, frozenset()),
    "ctypes": (UNREADABLE, frozenset()),
    "importlib": (UNREADABLE, frozenset()),
    "numpy.random": (CHANCE, frozenset()),
}
# Some of a module.
NAMES: dict[str, dict[str, str]] = {
    "time": dict.fromkeys(
        (
            *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"),
            *("process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "ctime"),
        ),
        CLOCK,
    )
    | dict.fromkeys(("localtime", "mktime", "timezone", "tzname", "altzone", "daylight"), ZONE),
    "uuid": dict.fromkeys(("uuid1", "uuid4", "uuid6", "uuid7", "uuid8", "getnode"), IDENTIFIER),
    "os": dict.fromkeys(("environ", "environb", "getenv", "getenvb"), ENVIRONMENT)
    | dict.fromkeys(("getpid", "getppid", "times", "getcwd", "getlogin"), PROCESS)
    | dict.fromkeys(("cpu_count", "getloadavg", "uname", "sysconf"), MACHINE)
    | dict.fromkeys(("listdir", "scandir", "stat", "walk", "open", "popen", "system", "access"), OUTSIDE)
    | {"urandom": CHANCE, "getrandom": CHANCE},
    "os.path": dict.fromkeys(("exists", "isfile", "isdir", "getsize", "getmtime", "abspath", "realpath"), OUTSIDE),
    "sys": dict.fromkeys(("argv", "flags", "stdin", "executable", "path", "modules"), ENVIRONMENT)
    | dict.fromkeys(("version", "version_info", "hexversion", "platform"), MACHINE)
    | dict.fromkeys(("getrefcount", "getsizeof"), PROCESS),
    "traceback": dict.fromkeys(("format_exc", "format_exception", "format_stack", "format_tb"), TEXT),
    "decimal": dict.fromkeys(("getcontext", "setcontext"), f"decimal.localcontext(), or {LIBRARY}"),
    "builtins": {
        "id": PROCESS,
        "hash": "zlib.crc32, or a key of your own: hashes of texts differ from process to process",
        "open": OUTSIDE,
        "input": OUTSIDE,
        "globals": UNREADABLE,
        "eval": UNREADABLE,
        "exec": UNREADABLE,
        "__import__": UNREADABLE,
    },
}
METHODS: dict[tuple[str, str], dict[str, str]] = {  # of classes
    ("datetime", "datetime"): dict.fromkeys(("now", "today", "utcnow"), CLOCK),
    ("datetime", "date"): {"today": CLOCK},
    ("pathlib", "Path"): {"cwd": PROCESS, "home": ENVIRONMENT},
}
FILE_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob"}  # of a Path, whatever it is
PATH_METHODS = FILE_METHODS | {"open", "exists", "is_file", "is_dir", "stat", "glob", "unlink", "touch"}
# Called so, they take the machine's clock or time zone: module, name → arguments that they need to be safe.
ARGUMENTS = {
    ("time", "gmtime"): (1, CLOCK),
    ("time", "strftime"): (2, CLOCK),
    ("datetime", "fromtimestamp"): (2, ZONE),
    ("random", "Random"): (1, CHANCE),
}
CHANGING = ("add_", "set_", "register", "setlocale", "seed")  # functions of libraries that change what they do later


@functools.lru_cache(maxsize=1)
def _objects(_modules: int) -> dict[object, tuple[str, str]]:
    """Return the suspicion about an object, whatever its name; ``_modules``: how many are imported."""
    found: dict[object, tuple[str, str]] = {}
    shared = random.random.__self__  # type: ignore[attr-defined]  # the generator behind the module's functions
    for name, value in vars(random).items():
        if getattr(value, "__self__", None) is shared:
            found[value] = f"random.{name}", CHANCE
    found[random.SystemRandom] = "random.SystemRandom", CHANCE
    for module_name, names in NAMES.items():
        module = sys.modules.get(module_name)
        for name, instead in names.items():
            value = getattr(module, name, None)
            if callable(value):
                found[value] = f"{module_name}.{name}".removeprefix("builtins."), instead
    for (module_name, class_name), names in METHODS.items():
        owner = getattr(sys.modules.get(module_name), class_name, None)
        for name, instead in names.items():
            if (value := getattr(owner, name, None)) is not None:
                found[value] = f"{class_name}.{name}", instead
    return found


def of_object(value: object) -> tuple[str, str] | None:
    """Return (what it is, what to use instead) for a function or class that is suspicious under any name."""
    try:
        known = _objects(len(sys.modules)).get(value)
    except TypeError:  # not hashable
        return None
    if known is not None:
        return known
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return of_member(module, name) if isinstance(module, str) and isinstance(name, str) else None


def of_member(module: str, name: str) -> tuple[str, str] | None:
    """Return (what it is, what to use instead) for a member of a module, by its name there."""
    instead = NAMES.get("os.path" if module == "posixpath" else module, {}).get(name)
    if instead is None:
        for prefix, (reason, safe) in MODULES.items():
            if (module == prefix or module.startswith(f"{prefix}.") or module == f"_{prefix}") and name not in safe:
                instead = reason
    return None if instead is None else (f"{module}.{name}".removeprefix("builtins."), instead)


def changes_a_library(value: object) -> str | None:
    """Return the name of a library's function that changes what the library does later; else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", "")
    if not isinstance(module, str) or isinstance(value, type | ModuleType) or not name.startswith(CHANGING):
        return None
    return f"{module}.{name}"
