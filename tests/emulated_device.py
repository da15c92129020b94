"""An emulated accelerator: tensors that report `cuda:0` or `mps:0` and compute on the CPU.

    device = install("cuda")                 # once per process, which ends with `leave()`, before a model is loaded
    states = torch.ones(3, device="cuda")    # states.device is cuda:0; its values are in CPU memory
    states + torch.ones(3)                   # RuntimeError: Expected all tensors to be on the same device

A tensor on the device is an `EmulatedTensor`, a wrapper around a CPU tensor. Its `__torch_dispatch__` refuses what the
device refuses (operands on two devices, a generator of another device, `.numpy()`, matrix products of integers on
CUDA, float64 on MPS), computes on the CPU and wraps the result; autograd and autocast are those of torch.
`synchronisations` counts, by line of bert_core, the operations for which the host waits until the device has finished:
copies to the CPU, `.item()`, `.tolist()`, operations whose result has a size that depends on values, and explicit
synchronisation. Memory, speed and the rounding of the device's own kernels are not emulated.

The emulator uses private parts of torch and needs the torch that constraints.txt pins, on Linux and built for the CPU:
`unavailable` tells whether it can be installed.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import Tensor

aten = torch.ops.aten
TORCH = "2.13"  # whose private parts are used
LIBRARIES = Path(torch.__file__).parent / "lib"
PACKAGE = "/bert_core/"  # synchronisations are counted by its lines
HOOKS = {"cuda": "_ZN2at6detail12getCUDAHooksEv", "mps": "_ZN2at6detail11getMPSHooksEv"}

synchronisations: Counter[str] = Counter()  # "file:line operation" -> number
_lock = threading.Lock()  # the autograd engine runs backward passes of a device in a thread of its own
_kept_alive: list[Any] = []  # C++ holds pointers to these objects
_device_generators: dict[int, Any] = {}  # by the address in C++; kept, so that no other generator takes its address
_device: torch.device | None = None

_COPIES = {aten.copy_.default, aten._to_copy.default, aten._copy_from.default, aten._copy_from_and_resize.default}
_INDEXING = {
    aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default,
    aten._unsafe_index.Tensor, aten._unsafe_index_put.default,
}  # fmt: skip
# Operations besides the pointwise ones that accept a 0-dim CPU tensor beside tensors of the device.
_ACCEPTING_CPU_SCALARS = {
    aten.where.self, aten.masked_fill.Tensor, aten.masked_fill_.Tensor, aten.index_put_.default, aten.index_put.default,
    aten._index_put_impl_.default, aten.index_fill.int_Tensor, aten.index_fill_.int_Tensor, aten.fill_.Tensor,
    aten.fill.Tensor, aten.addcmul.default, aten.addcdiv.default, aten.addcmul_.default, aten.addcdiv_.default,
}  # fmt: skip
_MATRIX_PRODUCTS = {
    aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.mv.default, aten.addmv.default,
    aten.addbmm.default, aten.convolution.default,
}  # fmt: skip
# Operations that return a value to the host, or whose result has a size that depends on values.
_SYNCHRONISING = {
    aten._local_scalar_dense.default, aten.nonzero.default, aten._unique2.default, aten.unique_dim.default,
    aten.unique_consecutive.default, aten.masked_select.default, aten.equal.default, aten.is_nonzero.default,
    aten.bincount.default, aten.repeat_interleave.Tensor,
}  # fmt: skip


class EmulatedTensor(Tensor):
    """A tensor on the emulated device; `inner` is the CPU tensor that holds its values."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        _count("tolist")
        return self.detach().inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __repr__(self, **_: Any) -> str:
        return f"EmulatedTensor({self.inner!r}, device={self.device}, requires_grad={self.requires_grad})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().inner.clone().__reduce_ex__(protocol)  # saved files are read with map_location="cpu"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            duplicate = _wrapped(self.inner.clone()).requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                duplicate._is_param = True  # type: ignore[attr-defined]
            memo[id(self)] = duplicate
        return memo[id(self)]

    @property
    def data(self) -> Any:
        return _wrapped(self.inner)

    @data.setter
    def data(self, value: Any) -> None:
        torch._C.TensorBase.data.__set__(self, value)
        self.inner = value.inner

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()  # the same for tensors that share memory

    def data_ptr(self) -> int:
        return self.inner.data_ptr()


class _Generator(torch._C.Generator):
    """A generator that reports the emulated device and draws what a CPU generator draws."""

    def __new__(cls, device: Any = "cpu") -> Any:
        generator = super().__new__(cls, device="cpu")
        generator.reported = torch.device(device)
        if _is_emulated(device):
            generator.reported = _device
            _device_generators[generator._cdata] = generator
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.reported  # type: ignore[attr-defined,no-any-return]


def unavailable() -> str | None:
    """Why the emulator cannot be installed on this machine, or None where it can."""
    if sys.platform != "linux" or not torch.__version__.startswith(TORCH) or torch.backends.cuda.is_built():
        return f"the emulator needs torch {TORCH} on Linux, built for the CPU; this is {torch.__version__}"
    return None


def install(kind: str) -> torch.device:
    """Install the emulated device in this process, "cuda" or "mps", and return it."""
    global _device
    _device = torch.device(kind, 0)
    number = {"cuda": torch._C._autograd.DeviceType.CUDA, "mps": torch._C._autograd.DeviceType.MPS}[kind]

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            return number

    # The registry of device guards has no Python interface for this device: the guard is registered for the
    # out-of-tree device and then moved, so that C++ completes "cuda" to "cuda:0".
    guard, other = Guard(), torch._C._autograd.DeviceType.PrivateUse1.value
    guards = (ctypes.c_void_p * 22).in_dll(
        ctypes.CDLL(str(LIBRARIES / "libc10.so")), "_ZN3c104impl26device_guard_impl_registryE"
    )
    before = guards[other]
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    guards[number.value], guards[other] = guards[other], before
    _report_built(kind)

    key = kind.upper()
    fallback, kernels = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    fallback.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), key)
    # `torch.tensor(..., device=...)` does not reach the fallback, and factories would resize a tensor within C++.
    kernels.impl("copy_", lambda *args, **kwargs: _run(aten.copy_.default, args, kwargs), key)
    for name, op in _factories():
        kernels.impl(name, lambda *args, _op=op, **kwargs: _run(_op, args, kwargs), key)
    _kept_alive.extend((guard, fallback, kernels))
    torch.Generator = _Generator  # type: ignore[misc,assignment]
    torch.__future__.set_swap_module_params_on_conversion(True)  # a parameter that is moved stays the same object
    (_patch_cuda if kind == "cuda" else _patch_mps)()
    return _device


def leave() -> NoReturn:
    """End this process at once: a thread of the autograd engine may still call the functions that C++ was given."""
    sys.stdout.flush()
    os._exit(0)


def _factories() -> Iterable[tuple[str, Any]]:
    """The operations that create a tensor on a device from no other tensor."""
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(aten, packet, None), overload or "default", None)
            arguments = [] if op is None else op._schema.arguments
            takes_tensor = any("Tensor" in str(argument.type) for argument in arguments)
            if any(argument.name == "device" for argument in arguments) and not takes_tensor:
                yield name, op


def _report_built(kind: str) -> None:
    """Let the hooks of the device answer that it is built and available, with one device: the autograd engine asks.

    The table of virtual functions is replaced by a copy with four other entries; the order of the entries is that of
    `ATen/detail/AcceleratorHooksInterface.h`, after two destructors: isBuilt, isAvailable, hasPrimaryContext, init,
    deviceCount. Two words stand before the table (type information).
    """
    hooks_of_device = getattr(ctypes.CDLL(str(LIBRARIES / "libtorch_cpu.so")), HOOKS[kind])
    hooks_of_device.restype = ctypes.c_void_p
    table_pointer, words, word = ctypes.c_void_p.from_address(hooks_of_device()), 64, ctypes.sizeof(ctypes.c_void_p)
    table = (ctypes.c_void_p * (words + 2)).from_address((table_pointer.value or 0) - 2 * word)
    replaced = (ctypes.c_void_p * (words + 2))(*table)
    answer = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda _: True)
    of_index = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda _, index: False)
    count = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda _: 1)
    for slot, function in ((2, answer), (3, answer), (4, of_index), (6, count)):
        replaced[2 + slot] = ctypes.cast(function, ctypes.c_void_p).value
    table_pointer.value = ctypes.addressof(replaced) + 2 * word
    _kept_alive.extend((answer, of_index, count, replaced))


def _patch_cuda() -> None:
    """Let `torch.cuda` describe a device of 8 GB, half of it free, with compute capability 8.0."""
    total = 8 * 2**30
    replacements: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "_lazy_init": lambda: None,
        "is_initialized": lambda: True,
        "get_device_capability": lambda device=None: (8, 0),
        "get_device_properties": lambda device=None: SimpleNamespace(
            name="emulated", major=8, minor=0, total_memory=total, multi_processor_count=1
        ),
        "mem_get_info": lambda device=None: (total // 2, total),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "synchronize": lambda device=None: _count("synchronize"),
        "set_device": lambda device: None,
        "manual_seed_all": lambda seed: None,
        "is_current_stream_capturing": lambda: False,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    }
    for name, function in replacements.items():
        setattr(torch.cuda, name, function)


def _patch_mps() -> None:
    """Let `torch.mps` be available; its attention is the mathematical form, as this build has no choice of kernels."""
    attend, mathematical = torch.nn.functional.scaled_dot_product_attention, aten._scaled_dot_product_attention_math

    def on_either_device(query: Tensor, *args: Any, **kwargs: Any) -> Any:
        if query.device.type != "mps":
            return attend(query, *args, **kwargs)
        return mathematical(query, *args, **kwargs)[0]

    torch.nn.functional.scaled_dot_product_attention = on_either_device
    torch.backends.mps.is_available = lambda: True  # type: ignore[assignment]
    torch.mps.synchronize = lambda: _count("synchronize")
    torch.mps.recommended_max_memory = lambda: 8 * 2**30
    torch.mps.current_allocated_memory = lambda: 0


def _is_emulated(device: Any) -> bool:
    return device is not None and _device is not None and torch.device(device).type == _device.type


def _wrapped(inner: Tensor) -> EmulatedTensor:
    """A tensor of the device that shares its values with a CPU tensor."""
    assert _device is not None  # there is no tensor of the device before it is installed
    if _device.type == "mps" and inner.dtype in (torch.float64, torch.complex128):
        raise TypeError(
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
            "Please use float32 instead."
        )
    wrapper: EmulatedTensor = Tensor._make_wrapper_subclass(
        EmulatedTensor, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
        layout=inner.layout, device=_device,
    )  # type: ignore[attr-defined]  # fmt: skip
    wrapper.inner = inner
    return wrapper


def _count(operation: str) -> None:
    """Count a synchronisation for the innermost line of bert_core that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None and PACKAGE not in frame.f_code.co_filename:
        frame = frame.f_back
    where = "outside" if frame is None else f"{frame.f_code.co_filename.rsplit(PACKAGE, 1)[-1]}:{frame.f_lineno}"
    with _lock:
        synchronisations[f"{where} {operation}"] += 1


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments, those in lists included."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _tensors(value)
    return tensors


def _mixed_devices(func: Any) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {_device} and cpu! "
        f"(when checking arguments in {func})"
    )


def _check(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Raise what the device would raise; returns whether any argument is on it."""
    tensors = _tensors([*args, *kwargs.values()])
    on_device = any(isinstance(tensor, EmulatedTensor) for tensor in tensors)
    generator = kwargs.get("generator")
    draws_there = generator is not None and (on_device or _is_emulated(kwargs.get("device")))
    if draws_there and generator._cdata not in _device_generators:
        raise RuntimeError(f"Expected a '{_device}' device type for generator but found 'cpu'")
    if func in _COPIES or not on_device:
        return on_device
    on_cpu = [tensor for tensor in tensors if not isinstance(tensor, EmulatedTensor)]
    if func in _INDEXING:
        if not isinstance(args[0], EmulatedTensor):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        on_cpu = [tensor for tensor in on_cpu if not any(tensor is index for index in args[1])]
    accepts_scalars = func in _ACCEPTING_CPU_SCALARS or torch.Tag.pointwise in func.tags
    for tensor in on_cpu:
        empty = tensor.numel() == 0 and func is aten.cat.default  # which is ignored there
        if not empty and (tensor.dim() or not accepts_scalars):
            raise _mixed_devices(func)
    if on_cpu and func._schema.is_mutable and any(tensor is args[0] for tensor in on_cpu):
        raise _mixed_devices(func)
    kind = tensors[0].dtype
    if func in _MATRIX_PRODUCTS and not (kind.is_floating_point or kind.is_complex) and _is_emulated("cuda"):
        raise RuntimeError(f"\"{func.__name__}_cuda\" not implemented for '{kind}'")
    return True


def _run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """One operation of the device, computed on the CPU."""
    on_device = _check(func, args, kwargs)
    if (target := kwargs.get("device")) is not None:
        on_device = _is_emulated(target)
    if func is aten.copy_.default:
        on_device = isinstance(args[0], EmulatedTensor)
    _count_synchronisation(func, args, kwargs, on_device)
    inner_args = _unwrapped(tuple(args))
    inner_kwargs = {name: _unwrapped(value) for name, value in kwargs.items()}
    if _is_emulated(target):
        inner_kwargs["device"] = torch.device("cpu")
    result = func(*inner_args, **inner_kwargs)
    if torch.Tag.inplace_view in func.tags:  # the wrapper has sizes of its own
        inner = args[0].inner
        with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
            torch._C.TensorBase.as_strided_(args[0], inner.size(), inner.stride(), inner.storage_offset())
        return args[0]
    # An operation in place returns the argument that it wrote to.
    returned = _tensors([*args, *kwargs.values()]) if func._schema.is_mutable or func is aten.lift_fresh.default else ()
    return _result(result, on_device, returned)


def _unwrapped(value: Any) -> Any:
    if isinstance(value, EmulatedTensor):
        return value.inner
    if isinstance(value, list | tuple):
        return [*map(_unwrapped, value)] if isinstance(value, list) else (*map(_unwrapped, value),)
    return value


def _result(value: Any, on_device: bool, returned: Sequence[Tensor]) -> Any:
    """What the CPU computed, as tensors of the device; `returned`: arguments of which one may be the result itself."""
    if isinstance(value, Tensor):
        for tensor in returned:
            if value is (tensor.inner if isinstance(tensor, EmulatedTensor) else tensor):
                return tensor
        return _wrapped(value) if on_device else value
    if isinstance(value, list | tuple):
        results = [_result(part, on_device, returned) for part in value]
        return results if isinstance(value, list) else tuple(results)
    return value


def _count_synchronisation(func: Any, args: Sequence[Any], kwargs: dict[str, Any], to_device: bool) -> None:
    if func in _COPIES:
        source = args[1] if func is aten.copy_.default else args[0]
        if isinstance(source, EmulatedTensor) and not to_device and not kwargs.get("non_blocking"):
            _count("copied to the CPU")
    elif func in _SYNCHRONISING:
        _count(func.__name__)
    elif func in _INDEXING and any(index is not None and index.dtype == torch.bool for index in args[1]):
        _count("indexed by a mask")
