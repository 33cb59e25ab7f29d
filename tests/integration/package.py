# SPDX-License-Identifier: Apache-2.0
"""The Python package of client/python on the library of this build."""
import contextlib
import inspect
import json
import os
import subprocess
import sys

import pytest

import programs

SOURCE = programs.ROOT / "client/python"
LIBRARY = programs.BUILD / "client/librecps.so"


def why_not():
    """Why the package cannot be imported here; "": it can."""
    if not LIBRARY.exists():
        return f"{LIBRARY} is not built"
    content = LIBRARY.read_bytes()
    for name in ("asan", "tsan"):
        if (f"__{name}_init".encode() in content
                and name not in os.environ.get("LD_PRELOAD", "")):
            return (f"a sanitizer must be in a program from its start: "
                    f"LD_PRELOAD=$(cc -print-file-name=lib{name}.so)")
    try:
        import numpy  # noqa: F401  # pylint: disable=unused-import
    except ImportError:
        return "there is no NumPy"
    return ""


def load():
    """The package; skips the module that asks where it cannot be."""
    why = why_not()
    if why:
        pytest.skip(why, allow_module_level=True)
    os.environ["RPS_LIBRARY"] = str(LIBRARY)
    if str(SOURCE) not in sys.path:
        sys.path.insert(0, str(SOURCE))
    import recps  # pylint: disable=import-outside-toplevel
    return recps


def _function_of(thing):
    """What is called: of a property its getter, of a static method it."""
    for name in ("fget", "func", "__func__"):
        thing = getattr(thing, name, None) or thing
    return thing if inspect.isfunction(thing) else None


def _faults_of_call(where, call):
    if not inspect.getdoc(call) and not where.endswith("__init__"):
        yield f"{where}: no words"
    signature = inspect.signature(call)
    for each in signature.parameters.values():
        if each.name not in ("self", "cls") and (
                each.annotation is each.empty):
            yield f"{where}: {each.name} has no type"
    if signature.return_annotation is inspect.Signature.empty:
        yield f"{where}: no type of what it answers"


def faults_of(module, names):
    """What of these names of a module has no docstring or no annotation."""
    faults = [] if module.__doc__ else [f"{module.__name__}: no words"]
    for name in names:
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            faults += _faults_of_call(name, thing)
        elif inspect.isclass(thing):
            if not vars(thing).get("__doc__"):
                faults.append(f"{name}: no words")
            for key, value in sorted(vars(thing).items()):
                call = _function_of(value)
                own = getattr(call, "__module__", None) == thing.__module__
                if call and own and (key == "__init__"
                                     or not key.startswith("_")):
                    faults += _faults_of_call(f"{name}.{key}", call)
    return faults


def environment(**more):
    """For a Python of its own that imports the package."""
    return programs.environment(
        RPS_LIBRARY=str(LIBRARY), PYTHONPATH=str(SOURCE),
        PYTHONDONTWRITEBYTECODE="1", **more)


def start(script, *arguments, **more):
    """A Python that runs a script, its output a pipe."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", script, *map(str, arguments)],
        env=environment(**more), text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(script, *arguments, timeout=60, **more):
    """What a script says that must end well."""
    child = start(script, *arguments, **more)
    try:
        said, _ = child.communicate(timeout=timeout)
    finally:
        child.kill()
    assert child.returncode == 0, said
    return said


def cluster_of(*servers, chief=False):
    """A connect() argument: this process a tool, or worker 0, the chief."""
    cluster = {"ps": [f"127.0.0.1:{server.port}" for server in servers]}
    if not chief:
        return cluster
    return {"cluster": {**cluster, "worker": ["localhost:1"]},
            "task": {"type": "worker", "index": 0}}


def free_addresses(count):
    """Of the loopback, for servers that a cluster names."""
    return [f"127.0.0.1:{port}" for port in programs.free_ports(count)]


@contextlib.contextmanager
def two_servers():
    """Of one job, as connect() of its only worker is told of them."""
    cluster = {"ps": free_addresses(2), "worker": ["localhost:1"]}
    with contextlib.ExitStack() as stack:
        for index in range(2):
            stack.enter_context(programs.Recpsd(bind=None, env={
                "TF_CONFIG": json.dumps({
                    "cluster": cluster,
                    "task": {"type": "ps", "index": index}})}))
        yield {"cluster": cluster, "task": {"type": "worker", "index": 0}}
