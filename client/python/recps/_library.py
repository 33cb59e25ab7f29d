# SPDX-License-Identifier: Apache-2.0
"""librecps as ctypes sees it: its structs, its calls, where it is found.

What stands here mirrors include/recps/{types,cluster,client,save,rows}.h field
by field; tests/integration/test_python.py compares sizes and offsets
with a C compiler's. ctypes gives the GIL back around every call.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import typing

__all__ = ["lib", "path"]

NAME_BYTES_MAX = 128
VOCABULARY_MAX = 1_000_000_000
REASON_BYTES = 160

OK = 0
E_TIMEOUT = -10
E_NOT_FOUND = -5

READ_ONLY = 1
PADDED = 2
POOL_ON_SERVER = 4
CLIENT_THREAD = 1

VALUES = ("float32", "float16", "bfloat16", "int8")
KEY_DTYPES = ("int64", "int32")
POOLINGS = ("none", "sum", "mean", "sqrtn")
#: RPS_DIM_MAX
DIM_MAX = 8192
OPTIMIZERS = ("sgd", "momentum", "adagrad", "rowwise_adagrad", "adam",
              "adamw", "adam_catchup", "adamw_catchup", "ftrl", "rmsprop")
INITIALIZERS = ("zeros", "constant", "uniform", "normal", "truncated_normal")
FANS = ("fan_in", "fan_out", "fan_avg")
DISTRIBUTIONS = ("truncated_normal", "normal", "uniform")
ON_FULL = ("refuse", "evict-lru", "evict-lfu")
ADMISSIONS = ("exact", "sketch")
TRANSPORTS = ("auto", "tcp", "unix", "shm", "local")
MODES = ("async", "sync", "bounded")
COMBINES = ("sum", "mean")
ROLES = ("local", "chief", "worker", "ps", "evaluator", "none")

_u8, _u32, _u64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
_int, _size, _float, _double = (ctypes.c_int, ctypes.c_size_t, ctypes.c_float,
                                ctypes.c_double)
_text, _void = ctypes.c_char_p, ctypes.c_void_p


class TableSpec(ctypes.Structure):
    """rps_table_spec"""

    _fields_ = [
        ("struct_bytes", _u32), ("name", ctypes.c_char * (NAME_BYTES_MAX + 1)),
        ("dim", _u32), ("value_dtype", _int), ("key_dtype", _int),
        ("device_vocabulary_size", _u64), ("seed", _u64),
        ("dense_elements", _u64), ("initializer", _int),
        ("initializer_low", _float), ("initializer_high", _float),
        ("optimizer", _int), ("learning_rate", _float),
        ("initial_accumulator", _float), ("beta1", _float), ("beta2", _float),
        ("epsilon", _float), ("weight_decay", _float), ("momentum", _float),
        ("nesterov", _u32), ("rho", _float), ("l1", _float), ("l2", _float),
        ("l2_shrinkage", _float), ("learning_rate_power", _float),
        ("clip_value", _float), ("clip_norm", _float),
        ("default_value", _float), ("stochastic_rounding", _u32),
        ("admission", _int), ("min_used_times", _u64),
        ("max_cold_secs", _u64), ("max_cold_steps", _u64),
        ("keep_min_rows", _u64), ("memory_limit", _u64), ("on_full", _int)]


class Member(ctypes.Structure):
    """rps_member"""

    _fields_ = [("index", _u32), ("address", _text)]


class Cluster(ctypes.Structure):
    """rps_cluster"""

    _fields_ = [
        ("role", _int), ("index", _u32), ("ps_count", _u32),
        ("ps", ctypes.POINTER(Member)), ("worker_count", _u32),
        ("worker_count_known", _int), ("workers", ctypes.POINTER(Member)),
        ("workers_listed", _u32), ("chief_address", _text),
        ("evaluator_address", _text), ("own_address", _text),
        ("replica_count", _u32), ("rank", _u32), ("is_chief", _int),
        ("addresses_differ", _int), ("fingerprint", _u64),
        ("recps_json", _text), ("notes", _text)]


class ClusterOptions(ctypes.Structure):
    """rps_cluster_options"""

    _fields_ = [
        ("struct_bytes", _u32), ("tf_config", _text),
        ("tf_config_file", _text), ("tf_config_env", _text),
        ("ps_hosts", _text), ("worker_hosts", _text), ("chief_hosts", _text),
        ("evaluator_hosts", _text), ("job_name", _text),
        ("task_index", _text), ("num_ps", _u32), ("num_workers", _u32),
        ("allow_unknown_roles", _int), ("task_optional", _int)]


class ClusterError(ctypes.Structure):
    """rps_cluster_error"""

    _fields_ = [("code", ctypes.c_char * 16), ("message", _text)]


REPORT = ctypes.CFUNCTYPE(None, _void, _text)


class ClientOptions(ctypes.Structure):
    """rps_client_options"""

    _fields_ = [
        ("struct_bytes", _u32), ("cluster", ctypes.POINTER(Cluster)),
        ("job_id", _text), ("job_seed", _u64), ("checkpoint_dir", _text),
        ("checkpoint_read_only", _int), ("connect_timeout_ms", _u32),
        ("request_timeout_ms", _u32), ("report", REPORT),
        ("report_context", _void), ("token_file", _text), ("tls_ca", _text),
        ("tls_cert", _text), ("tls_key", _text),
        ("reconnect_timeout_ms", _u32), ("give_up", _void),
        ("give_up_context", _void), ("body_checksum", _int),
        ("transport", _int), ("unix_dir", _text), ("known_epoch", _u32),
        ("flags", _u32)]


class Traffic(ctypes.Structure):
    """rps_traffic"""

    _fields_ = [("requests", _u64), ("sent_bytes", _u64),
                ("received_bytes", _u64), ("round_trips", _u64)]


class CRollback(ctypes.Structure):
    """rps_rollback"""

    _fields_ = [("first", _u64), ("last", _u64), ("pushes", _u64),
                ("acknowledged", _u64), ("unanswered", _u64)]


class CTicket(ctypes.Structure):
    """rps_ticket"""

    _fields_ = [("id", _u64)]


class CLookup(ctypes.Structure):
    """rps_lookup"""

    _fields_ = [
        ("table", _void), ("keys", _void), ("key_count", _size),
        ("offsets", _void), ("bag_count", _size), ("pooling", _int),
        ("flags", _u32), ("padding_key", _u64), ("rows", _void),
        ("row_stride", _size), ("value", _int), ("wire", _int)]


class CPush(ctypes.Structure):
    """rps_push"""

    _fields_ = [
        ("table", _void), ("keys", _void), ("key_count", _size),
        ("offsets", _void), ("bag_count", _size), ("pooling", _int),
        ("flags", _u32), ("padding_key", _u64), ("gradients", _void),
        ("gradient_stride", _size), ("value", _int),
        ("learning_rate", _float), ("wire", _int)]


class Call(ctypes.Structure):
    """rps_call"""

    _fields_ = [("step", _u64), ("timeout_ms", _u32), ("flags", _u32)]


class Assign(ctypes.Structure):
    """rps_assign"""

    _fields_ = [("table", _void), ("keys", _void), ("key_count", _size),
                ("rows", _void), ("slots", _void), ("meta", _void)]


class Terms(ctypes.Structure):
    """rps_terms"""

    _fields_ = [
        ("mode", _int), ("combine", _int), ("replica_count", _u32),
        ("step_timeout_ms", _u32), ("step_bytes_max", _u64),
        ("staleness", _u32), ("backup_workers", _u32), ("on_lost", _int),
        ("recover", _int), ("cut", _int)]


class Start(ctypes.Structure):
    """rps_start"""

    _fields_ = [("epoch", _u32), ("step", _u64), ("terms", Terms),
                ("data_position", _void),
                ("reason", ctypes.c_char * REASON_BYTES)]


class Decision(ctypes.Structure):
    """rps_decision"""

    _fields_ = [
        ("step", _u64), ("loss", _double), ("counted", _u32),
        ("included", _int), ("gone", _u32), ("gone_rank", _u32),
        ("wishes", _u32), ("save_step", _u64)]


class Eviction(ctypes.Structure):
    """rps_eviction"""

    _fields_ = [("examined", _u64), ("cold", _u64), ("full", _u64),
                ("bytes_before", _u64), ("bytes_after", _u64)]


class Hot(ctypes.Structure):
    """rps_hot"""

    _fields_ = [("key", _u64), ("count", _u64), ("error", _u64)]


class Scan(ctypes.Structure):
    """rps_scan"""

    _fields_ = [("ps", _u32), ("done", _u32), ("place", _u64),
                ("hash", _u64), ("key", _u64)]


class Rows(ctypes.Structure):
    """rps_rows"""

    _fields_ = [("keys", _void), ("rows", _void), ("slots", _void),
                ("meta", _void)]


class SavePlan(ctypes.Structure):
    """rps_save_plan"""

    _fields_ = [("step", _u64), ("data_position", _text), ("keep", _u32),
                ("deltas_max", _u32), ("now", _int)]


class CSaved(ctypes.Structure):
    """rps_saved"""

    _fields_ = [
        ("step", _u64), ("delta", _int), ("parent_step", _u64),
        ("rows", _u64), ("erased", _u64), ("bytes", _u64),
        ("pause_us", _u64), ("ms", _u64)]


#: name in librecps: (result, arguments)
_CALLS: dict[str, tuple[typing.Any, list[typing.Any]]] = {
    "rps_status_str": (_text, [_int]),
    "rps_table_spec_init": (None, [_void, _text, _u32, _int]),
    "rps_table_spec_variance_scaling": (_int, [_void, _float, _int, _int]),
    "rps_table_spec_check": (_int, [_void, _text, _size]),
    "rps_cluster_options_init": (None, [_void]),
    "rps_cluster_resolve": (_int, [_void, _void, _void]),
    "rps_cluster_finish": (None, [_void]),
    "rps_cluster_error_finish": (None, [_void]),
    "rps_client_options_init": (None, [_void]),
    "rps_client_open": (_int, [_void, _void]),
    "rps_client_close": (None, [_void]),
    "rps_client_error": (_text, [_void]),
    "rps_client_fd": (_int, [_void]),
    "rps_client_traffic": (None, [_void, _void]),
    "rps_server_count": (_u32, [_void]),
    "rps_client_rolled_back": (_int, [_void, _u32, _void]),
    "rps_server_transport": (_int, [_void, _u32]),
    "rps_get_embedding_table": (_int, [_void, _void, _void]),
    "rps_find_embedding_table": (_int, [_void, _text, _void]),
    "rps_embedding_table_spec": (ctypes.POINTER(TableSpec), [_void]),
    "rps_lookup_start": (_int, [_void, _void, _void, _size, _void]),
    "rps_push_start": (_int, [_void, _void, _void, _size, _void]),
    "rps_wait": (_int, [_void, CTicket, _u32]),
    "rps_poll": (_int, [_void, CTicket, _void]),
    "rps_cancel": (None, [_void, CTicket]),
    "rps_lookup_step": (_u64, [_void]),
    "rps_assign_rows": (_int, [_void, _void]),
    "rps_refresh": (_int, [_void, _size, _void, _u64, _void, _void]),
    "rps_alter_table": (_int, [_void, _text, _text]),
    "rps_erase_rows": (_int, [_void, _text, _size, _void, _void]),
    "rps_evict_rows": (_int, [_void, _text, _void, _void]),
    "rps_drop_table": (_int, [_void, _text, _void]),
    "rps_hot_keys": (_int, [_void, _text, _size, _void, _void]),
    "rps_read_rows": (_int, [_void, _void, _void, _size, _void, _void]),
    "rps_job_begin": (_int, [_void, _u64, _void, _void]),
    "rps_job_join": (_int, [_void, _void]),
    "rps_job_await_end": (_int, [_void, _u32]),
    "rps_step_end": (_int, [_void, _u64, _double, _u32, _void]),
    "rps_apply": (_int, [_void]),
    "rps_save_begin": (_int, [_void, _void]),
    "rps_save_wait": (_int, [_void, _u32, _void]),
    "rps_newest_checkpoint": (_int, [_void, _void]),
    "rps_stat": (_int, [_void, _u32, _void]),
    "rps_stat_digests": (_int, [_void, _u32, _void]),
    "rps_stat_times": (_int, [_void, _u32, _void]),
    "rps_ping": (_int, [_void, _u32, _void]),
    "rps_wish": (_int, [_void, _u32]),
    "rps_shutdown": (_int, [_void]),
}


def _find() -> str:
    """$RPS_LIBRARY, the wheel's own, else the system's."""
    given = os.environ.get("RPS_LIBRARY")
    if given:
        return given
    beside = pathlib.Path(__file__).with_name("librecps.so")
    return str(beside) if beside.is_file() else "librecps.so"


def _load(name: str) -> ctypes.CDLL:
    try:
        for needed in pathlib.Path(name).parent.glob("lib*.so.*"):
            if needed.parent == pathlib.Path(__file__).parent:
                ctypes.CDLL(str(needed))  # found by its soname then
        library = ctypes.CDLL(name)
        for call, (result, arguments) in _CALLS.items():
            function = getattr(library, call)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"recps: {name} is not the librecps of this package: {error}; "
            "install the wheel, or set RPS_LIBRARY to librecps.so of the same "
            "version") from error
    options, spec = ClientOptions(), TableSpec()
    library.rps_client_options_init(ctypes.byref(options))
    library.rps_table_spec_init(ctypes.byref(spec), b"x", 1, 0)
    if (options.struct_bytes != ctypes.sizeof(options)
            or spec.struct_bytes != ctypes.sizeof(spec)):
        raise ImportError(
            f"recps: {name} is of another version than this package (its "
            "structs have other sizes); set RPS_LIBRARY to its own")
    return library


#: Where librecps was found.
path: str = _find()
lib: typing.Any = _load(path)

_libc: typing.Any = ctypes.CDLL(None)
_libc.free.argtypes = [_void]
_libc.free.restype = None


def take_text(pointer: ctypes.c_void_p) -> str:
    """The text that librecps gave away, which is freed."""
    if not pointer.value:
        return ""
    try:
        return ctypes.string_at(pointer.value).decode("utf-8", "replace")
    finally:
        _libc.free(pointer)
        pointer.value = None
