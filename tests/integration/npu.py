# SPDX-License-Identifier: Apache-2.0
"""librecps-npu by ctypes: a device, tensors and operators for tests.

The structs are written again after include/recps/npu*.h, as any other
language would have to do it.
"""
import ctypes
from ctypes import (POINTER, Structure, byref, c_bool, c_char_p, c_double,
                    c_int, c_uint32, c_uint64, c_void_p)

import numpy

import programs

LIBRARY = programs.BUILD / "client/npu/librecps-npu.so"
F32, I32, F64 = 0, 2, 3
DTYPES = {F32: numpy.float32, I32: numpy.int32, F64: numpy.float64}


class View(Structure):  # rps_npu_tensor
    _fields_ = [("storage", c_void_p), ("offset", c_uint64),
                ("dtype", c_int), ("ndim", c_uint32),
                ("shape", c_uint64 * 4), ("strides", c_uint64 * 4)]


ViewP = POINTER(View)


class OpsOptions(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("deterministic", c_bool),
                ("fusion", c_bool), ("precision_mode", c_int),
                ("implmode", c_int)]


class Ops(Structure):
    _fields_ = [("stream", c_void_p), ("options", OpsOptions),
                ("name", c_char_p)]


class Linear(Structure):
    _fields_ = [("x", ViewP), ("weight", ViewP), ("bias", ViewP),
                ("activation", c_int), ("z", ViewP), ("y", ViewP)]


class LinearGradient(Structure):
    _fields_ = [("x", ViewP), ("weight", ViewP), ("activation", c_int),
                ("kept", ViewP), ("dy", ViewP), ("dx", ViewP),
                ("dweight", ViewP), ("dbias", ViewP), ("accumulate", c_bool)]


class Bce(Structure):
    _fields_ = [("logits", ViewP), ("labels", ViewP), ("weights", ViewP),
                ("scale", ViewP), ("loss", ViewP), ("accumulate", c_bool),
                ("dlogits", ViewP)]


class Optimizer(Structure):
    _fields_ = [("struct_bytes", c_uint32), ("kind", c_int),
                ("beta1", c_double), ("beta2", c_double),
                ("epsilon", c_double), ("weight_decay", c_double),
                ("learning_rate", ViewP), ("step", ViewP), ("finite", ViewP)]


class Npu:
    """A device with one stream."""

    def __init__(self):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.rps_npu_error.restype = c_char_p
        self.library.rps_npu_close.restype = None
        self.library.rps_npu_stream_destroy.restype = None
        self.library.rps_npu_tensor_release.restype = None
        self.device, self.stream = c_void_p(), c_void_p()
        self.views = []
        self.call("open", byref(self.device), c_uint32(0), None)
        self.call("stream_create", self.device, b"compute",
                  byref(self.stream))
        self.ops = Ops(stream=self.stream)
        self.library.rps_npu_ops_options_init(byref(self.ops.options))

    def call(self, name, *arguments):
        status = getattr(self.library, "rps_npu_" + name)(*arguments)
        assert status == 0, self.library.rps_npu_error().decode()

    def operator(self, name, *arguments):
        self.call(name, byref(self.ops), *arguments)

    def tensor(self, values, dtype=F32):
        """A tensor that holds `values`."""
        values = numpy.ascontiguousarray(values, DTYPES[dtype])
        shape = (c_uint64 * max(values.ndim, 1))(*values.shape)
        view = View()
        self.call("tensor_create", self.stream, c_int(dtype),
                  c_uint32(values.ndim), shape, byref(view))
        self.views.append(view)
        self.call("tensor_from_host", self.stream, byref(view),
                  values.ctypes.data_as(c_void_p))
        self.call("stream_synchronize", self.stream)
        return view

    def write(self, view, values):
        values = numpy.ascontiguousarray(values, DTYPES[view.dtype])
        self.call("tensor_from_host", self.stream, byref(view),
                  values.ctypes.data_as(c_void_p))
        self.call("stream_synchronize", self.stream)

    def read(self, view):
        values = numpy.empty(view.shape[:view.ndim], DTYPES[view.dtype])
        self.call("tensor_to_host", self.stream, byref(view),
                  values.ctypes.data_as(c_void_p))
        self.call("stream_synchronize", self.stream)
        return values

    def close(self):
        for view in self.views:
            self.library.rps_npu_tensor_release(byref(view))
        self.library.rps_npu_stream_destroy(self.stream)
        self.library.rps_npu_close(self.device)
