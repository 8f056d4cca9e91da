"""What runtimes, frameworks and exporters call the things they do: the one table of names, by runtime and purpose.

A name tells its purpose from its beginning to its end, as its source has it; what merely sounds like one tells
nothing. Whoever wants to know what a call, a range or a kernel is asks here (``names_for``, ``is_collective``), so that
no runtime is left out where another is known.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal

from msgspec import Struct

Runtime = Literal["cuda", "hip", "acl", "ge", "torch", "inductor", "torch_npu", "hccl"]
#: ``call``: any call of a runtime; ``launch``: of kernels, one or few; ``replay``: of a captured graph; ``graph_run``:
#: ranges around the run of a compiled one; ``wait``: for the device; ``blocking_copy``: a copy that returns when it is
#: done; ``read``: a value for the host; ``allocate``: memory taken or given back; ``map``: addresses and access to it;
#: ``holding``: what of that may hold up the device; ``capture_begin`` and
#: ``capture_end``: launches between them are recorded, not run; ``capture``: what else a graph takes to be recorded;
#: ``set_up``: done once by a process; ``context``: makes the context where it is the first call of all; ``async``: may
#: take as long as the device does, so that its length tells nothing of the host; ``tiling``: shapes, tiling, workspace;
#: ``compiled``: ranges around code that torch.compile made; ``queue``: tasks between two threads of the host.
Purpose = Literal[
    "call", "launch", "replay", "graph_run", "wait", "blocking_copy", "read", "copy", "allocate", "map", "holding",
    "capture_begin", "capture_end", "capture", "set_up", "context", "async", "compile", "tiling", "operator", "aclop",
    "communication", "compiled", "queue", "module", "step", "optimizer", "autograd", "torch_op", "data_loading", "gc",
]  # fmt: skip


class Known(Struct, frozen=True):
    """Names of one runtime for one purpose: a pattern of whole names, and where they are written down."""

    runtime: Runtime
    purpose: Purpose
    pattern: str
    source: str


_CUDA_RUNTIME: Final = "CUDA Runtime API, as Kineto records it (cat cuda_runtime)"
_CUDA_DRIVER: Final = "CUDA Driver API, as Kineto records it (cat cuda_driver); Triton launches by it"
_HIP: Final = "HIP Runtime API, as Kineto's ROCm tracers record it (cat cuda_runtime or hip_runtime)"
_ACL: Final = "AscendCL API reference; the exporter puts AscendCL@ before its calls"
_CANN: Final = "msprof: calls of CANN's layers have the layer before them (Node@, Model@, Runtime@)"
_GE: Final = "GE, runtime/v2: kernels of its execution graphs (REGISTER_KERNEL), whose types are recorded"
_TORCHAIR: Final = "TorchAir: executors of graphs (RECORD_FUNCTION)"
_PROFILER: Final = "PyTorch: torch.autograd.profiler.record_function and torch.profiler"
_TORCH_NPU: Final = "torch_npu: csrc/framework, task queue (QueueParas, COPY_PARAS_MAP, EVENT_PARAS_MAP)"
_INDUCTOR: Final = "PyTorch: torch/_inductor, torch/_dynamo and torch/_functorch, record_function and dynamo_timed"

#: What the exporter may put before calls of CANN.
_ANY_LAYER: Final = r"(?:(?:AscendCL|Node|Model|Runtime|GE)@)"
_ACLRT: Final = r"(?:AscendCL@)?aclrt"

#: The table. Patterns of one purpose are alternatives.
TABLE: Final[tuple[Known, ...]] = (
    # -- calls of any purpose
    Known("cuda", "call", r"cuda[A-Z]\w*", _CUDA_RUNTIME),
    Known("cuda", "call", r"cu[A-Z]\w*", _CUDA_DRIVER),
    Known("hip", "call", r"hip[A-Z]\w*", _HIP),
    Known("acl", "call", r"AscendCL@.*|acl(?:rt|mdl)\w*", _ACL),
    Known("acl", "call", r"Runtime@.*", _CANN),
    # -- launches
    Known("cuda", "launch", r"cudaLaunch(?:Cooperative)?Kernel\w*", _CUDA_RUNTIME),
    Known("cuda", "launch", r"cuLaunch(?:Cooperative)?Kernel\w*|cuLaunchGrid\w*", _CUDA_DRIVER),
    Known("hip", "launch", r"hip(?:Ext|Module|ExtModule|HccModule|Drv)?Launch(?:Cooperative|Multi)?Kernel\w*"
                           r"|hipLaunchByPtr", _HIP),
    Known("acl", "launch", r"(?:AscendCL@)?aclrtLaunch\w*", _ACL),
    Known("acl", "launch", r"(?:Node|Runtime|Model)@.*|rt(?:KernelLaunch|ModelRIExecute)\w*", _CANN),
    Known("ge", "launch", rf"{_ANY_LAYER}?\[?(?:Atomic|Aicpu)?Launch(?:\w*(?:Kernel|Task|CopyFlow)\w*)?\]?", _GE),
    Known("cuda", "replay", r"cu(?:da)?GraphLaunch\w*", _CUDA_RUNTIME),
    Known("hip", "replay", r"hipGraphLaunch\w*", _HIP),
    Known("acl", "replay", r"(?:AscendCL@)?aclmdl\w*Execute\w*", _ACL),
    Known("ge", "graph_run", r"TorchNpuGraphBase::Run|ExecuteGraph|RunGraph(?:WithStreamAsync)?", _TORCHAIR),
    # -- waits and copies
    Known("cuda", "wait", r"cu(?:da)?[A-Z]\w*Synchronize\w*", _CUDA_RUNTIME),
    Known("hip", "wait", r"hip\w*Synchronize\w*", _HIP),
    Known("acl", "wait", rf"{_ACLRT}\w*Synchronize\w*", _ACL),
    Known("acl", "wait", r"Runtime@\w*Synchronize\w*", _CANN),
    Known("cuda", "blocking_copy", r"cudaMemcpy(?:2D|3D|ToSymbol|FromSymbol)?"
                                   r"|cuMemcpy(?:2D|3D|HtoD|DtoH|DtoD)?(?:_v2)?", _CUDA_RUNTIME),
    Known("hip", "blocking_copy", r"hipMemcpy(?:WithStream|2D|3D|HtoD|DtoH|DtoD|ToSymbol|FromSymbol)?",
          _HIP + "; PyTorch copies by hipMemcpyWithStream where it also waits (c10, memcpy_and_sync)"),
    Known("acl", "blocking_copy", rf"{_ACLRT}Memcpy(?:2d)?", _ACL),
    Known("torch", "read", r"aten::(?:item|_local_scalar_dense|is_nonzero|equal)", "PyTorch: ATen, native operators"),
    Known("cuda", "copy", r"cu(?:da)?Mem(?:cpy|set|Prefetch)\w*", _CUDA_RUNTIME),
    Known("hip", "copy", r"hipMem(?:cpy|set|Prefetch)\w*", _HIP),
    Known("acl", "copy", rf"{_ACLRT}Mem(?:cpy|set)\w*", _ACL),
    Known("acl", "copy", r"Runtime@\w*Mem(?:cpy|set)\w*", _CANN),
    # -- memory
    Known("cuda", "allocate", r"cuda(?:Malloc|Free|HostAlloc)\w*", _CUDA_RUNTIME),
    Known("cuda", "allocate", r"cuMem(?:Alloc|Free|Create|Release|HostAlloc)\w*", _CUDA_DRIVER),
    Known("hip", "allocate", r"hip(?:Ext)?(?:Malloc|Free|Host(?:Alloc|Malloc|Free))\w*"
                             r"|hipMem(?:Alloc|Free|Create|Release)\w*", _HIP),
    Known("acl", "allocate", rf"{_ACLRT}(?:Malloc|Free)\w*", _ACL),
    Known("cuda", "map", r"cudaHost(?:Register|Unregister|Get)\w*", _CUDA_RUNTIME),
    Known("cuda", "map", r"cuMem(?:Map|Unmap|SetAccess|Address|Host)\w*", _CUDA_DRIVER),
    Known("hip", "map", r"hipHost(?:Register|Unregister|Get)\w*|hipMem(?:Map|Unmap|SetAccess|Address)\w*", _HIP),
    Known("acl", "map", rf"{_ACLRT}(?:Host(?:Register|Unregister)|(?:Map|Unmap)Mem|(?:Reserve|Release)MemAddress)\w*",
          _ACL),
    Known("cuda", "holding", r"cuda(?:Malloc|Free)(?:Host)?|cudaHostAlloc|cuMem(?:Alloc|Free)(?:_v2)?",
          "CUDA C++ Programming Guide: calls that synchronise implicitly"),
    Known("hip", "holding", r"hip(?:Malloc|Free)(?:Host)?|hipHost(?:Alloc|Malloc|Free)", _HIP),
    Known("acl", "holding", rf"{_ACLRT}(?:Malloc|Free)(?:Host)?", _ACL),
    Known("acl", "allocate", r"Runtime@\w*(?:Malloc|Free)\w*", _CANN),
    Known("ge", "allocate", rf"{_ANY_LAYER}?\[?(?:Alloc|Free)(?:Batch|Mem|Tensor|FixedFeature|ModelOut)\w*\]?", _GE),
    Known("torch_npu", "allocate", r"PTA\b.*(?:malloc|free).*", _TORCH_NPU),
    # -- graphs that are captured
    Known("cuda", "capture_begin", r"cu(?:da)?StreamBeginCapture\w*", _CUDA_RUNTIME),
    Known("cuda", "capture_end", r"cu(?:da)?StreamEndCapture\w*", _CUDA_RUNTIME),
    Known("cuda", "capture", r"cu(?:da)?Graph(?:Instantiate|Upload|Exec|Create|Add|Debug|Get|Destroy)\w*",
          _CUDA_RUNTIME),
    Known("hip", "capture_begin", r"hipStreamBeginCapture\w*", _HIP),
    Known("hip", "capture_end", r"hipStreamEndCapture\w*", _HIP),
    Known("hip", "capture", r"hipGraph(?:Instantiate|Upload|Exec|Create|Add|Debug|Get|Destroy)\w*", _HIP),
    Known("acl", "capture_begin", r"(?:AscendCL@)?aclmdlRICaptureBegin|(?:Runtime@)?rtStreamBeginCapture\w*", _ACL),
    Known("acl", "capture_end", r"(?:AscendCL@)?aclmdlRICaptureEnd|(?:Runtime@)?rtStreamEndCapture\w*", _ACL),
    Known("acl", "capture", r"(?:AscendCL@)?aclmdlRI(?:Build|Destroy|CaptureTask)\w*", _ACL),
    Known("inductor", "capture", r"CUDAGraphNode\.record\b.*", _INDUCTOR),
    # -- work of a process's first calls
    Known("cuda", "set_up", r"cuInit|cu(?:da)?(?:Module|Library)(?:Load|Get)\w*|cuCtxCreate\w*|cuDevicePrimaryCtx\w*"
                            r"|cudaSetDevice|cudaStreamCreate\w*|cudaGetDeviceProperties\w*", _CUDA_RUNTIME),
    Known("hip", "set_up", r"hip(?:Init|SetDevice|(?:Module|Library)(?:Load|Get)\w*|StreamCreate\w*|DevicePrimaryCtx\w*"
                           r"|GetDeviceProperties\w*)", _HIP),
    Known("acl", "set_up", r"(?:\w+@)?(?:aclInit|aclrtSetDevice|aclrtCreate(?:Context|Stream)\w*|aclrtBinaryLoad\w*"
                           r"|HcclCommInit\w*|\w*(?:DevBinaryRegister|RegisterAllKernel)\w*)", _ACL),
    Known("cuda", "set_up", r"cu(?:da)?(?:Func(?:Get|Set)|Occupancy)\w*",
          "CUDA C++ Programming Guide, lazy loading: what asks for a kernel's attributes loads it"),
    Known("hip", "set_up", r"hip(?:Func(?:Get|Set)|(?:Module)?Occupancy)\w*", _HIP),
    Known("cuda", "context", r"cudaFree", "CUDA C++ Programming Guide, initialization: the first call makes it"),
    Known("hip", "context", r"hipFree", _HIP),
    Known("cuda", "async", r"cu(?:da)?\w*(?:Synchronize|Memcpy|Memset|Wait|Query)\w*", _CUDA_RUNTIME),
    Known("hip", "async", r"hip\w*(?:Synchronize|Memcpy|Memset|Wait|Query)\w*", _HIP),
    Known("acl", "async", r"(?:\w+@)?\w*(?:Synchronize|Memcpy|Memset|Wait|Query|Compile)\w*", _ACL),
    # -- what precedes a launch, and operators of CANN
    Known("acl", "compile", rf"AscendCL@(?:opCompile|aclopCompile)|{_ANY_LAYER}\w*Build(?:Model|Graph)\w*", _CANN),
    Known("inductor", "compile", r".*\(dynamo_timed\)|entire_frame_compile|_compile\.compile_inner|backend_compile"
                                 r"|compile_fx_inner", _INDUCTOR),
    Known("acl", "tiling", rf"{_ANY_LAYER}\w*(?:Tiling|InferShape|GetWorkspaceSize|CalcWorkspace)\w*"
                           r"|aclnn\w+GetWorkspaceSize", _CANN),
    Known("ge", "tiling", rf"{_ANY_LAYER}?\[?(?:Cacheable)?(?:Tiling|InferShape|CalcWorkspace)\w*\]?", _GE),
    Known("acl", "operator", r"AscendCL@acl(?:nn|op|Create|Destroy).*|aclnn\w.*|aclop\w.*", _ACL),
    Known("acl", "aclop", r"(?:AscendCL@)?aclop(?:CompileAndExecute|Execute)(?:V2)?", _ACL),
    # -- communication as the host asks for it
    Known("hccl", "communication", r"(?:(?:Enqueue|Dequeue|AscendCL|Node|Model|Runtime)@)?(?:hcom_\w+|Hccl[A-Z]\w*)"
                                   r"|(?:Communication|Hccl|HCCL)@.*", "HCCL API reference; msprof's layers"),
    Known("cuda", "communication", r"nccl[A-Z]\w*", "NCCL API; RCCL has the same names"),
    Known("torch", "communication", r"(?:nccl|hccl|gloo|mccl|xccl|ucc):\w+.*|_?c10d\w*::.*|record_param_comms",
          "PyTorch: torch.distributed, ProcessGroup and its functional operators"),
    Known("torch", "communication", r"symm_mem::.*", "PyTorch: torch.distributed._symmetric_memory"),
    # -- ranges and operators of the frameworks
    Known("torch", "step", r"ProfilerStep.*", _PROFILER),
    Known("torch", "optimizer", r"Optimizer\..*", _PROFILER),
    Known("torch", "autograd", r"autograd::.*|\w*Backward\d*|torch::autograd.*", "PyTorch: torch/csrc/autograd"),
    Known("torch", "data_loading", r"enumerate\(DataLoader\)#.*", "PyTorch: torch/utils/data/dataloader.py"),
    Known("torch", "gc", r"(?:Python )?GC", "PyTorch's and torch_npu's profilers: garbage collection"),
    Known("torch", "torch_op", r"[\w.]+::.*|TorchDynamo Cache Lookup", _PROFILER),
    Known("torch_npu", "torch_op", r"acl_memcpy_\w+|contiguous_[dh]_\w+|format_contiguous\w*|empty_tensor", _TORCH_NPU),
    Known("torch", "module", r"nn\.Module: .*|(?:DistributedDataParallel|FullyShardedDataParallel|DataParallel)\.\w+",
          "PyTorch: torch.profiler (with_modules), torch/nn/parallel and torch/distributed/fsdp"),
    Known("inductor", "compiled", r"(?:## )?Call CompiledFxGraph\b.*|Torch-Compiled Region\b.*|CompiledFunction"
                                  r"|Pregraph bytecode\b.*|AOTDispatcher Runtime Wrapper\b.*|CUDAGraphNode\.\w+.*"
                                  r"|CUDAGraphTreeManager\b.*", _INDUCTOR),
    Known("torch_npu", "queue", r"(?:Enqueue|Dequeue)\b.*|(?:record|wait|destroy|reset)_event", _TORCH_NPU),
)  # fmt: skip


def pattern_for(purpose: Purpose, *runtimes: Runtime) -> str:
    """Return a pattern, anchored at both ends, of the names for a purpose: of these runtimes, or of all."""
    found = [row.pattern for row in TABLE if row.purpose == purpose and (not runtimes or row.runtime in runtimes)]
    return rf"^(?:{'|'.join(found)})$"


@cache
def names_for(*purposes: Purpose) -> re.Pattern[str]:
    """Return a pattern of whole names for any of some purposes, of all runtimes."""
    return re.compile("|".join(map(pattern_for, purposes)), re.DOTALL)


#: What torch_npu's task queue takes: the operator's name.
DEQUEUED: Final = re.compile(r"^Dequeue@(.+)$", re.DOTALL)


def is_step(name: str) -> bool:
    """Tell the range of a profiler's step: ``ProfilerStep#12``."""
    return name.startswith("ProfilerStep#")


# -- Roles of ranks in reinforcement learning, by the names of ranges on their hosts.

Role = Literal["rollout", "weights", "log_prob", "values", "reward", "update"]

#: What programs call a turn of each role: functions of workers that verl marks (DistProfiler.annotate in
#: verl/workers, by their name or their ``role``), its marked_timer of the transfer of weights, and the stages of
#: MindSpeed-RL's workers and profiler.
_ROLES: Final[dict[Role, str]] = {
    "rollout": r"(?:actor_|async_)?generate_sequences|actor_generate|rollout_generate|(?:vllm|sglang)_generate",
    "weights": r"update_weights|sync_rollout_weights|sync_weights|rollout_mode|resharding_to_(?:infer|train)",
    "log_prob": r"(?:actor_|ref_|reference_)?compute_log_prob|compute_ref_log_prob|old_log_prob|ref_log_prob"
                r"|actor_log_prob",
    "values": r"(?:critic_)?compute_values",
    "reward": r"(?:rm_|reward_)?compute_rm_score|reward_model_compute_rm_score|compute_reward",
    "update": r"update_(?:actor|critic|policy)|(?:actor|critic)_update",
}  # fmt: skip
#: A name stands alone, behind a class, or as a frame of Python: "workers.py(12): update_actor".
_NAMED_SO: Final = re.compile(
    r"(?:.*\.py\(\d+\): |(?:\w+\.)*)(?:" + "|".join(f"(?P<{role}>{names})" for role, names in _ROLES.items()) + ")"
)


def role_of(name: str) -> Role | None:
    """Return the role of which a range of the host's tells, if it does."""
    found = _NAMED_SO.fullmatch(name)
    return next((role for role in _ROLES if found[role]), None) if found else None


# -- Kernels that communicate: those of collective libraries, and of frameworks that write to each other's memory.
#
# Only the kernel's own name counts, not the types in its arguments; inductor names its own kernels after the operators
# that went into them (triton_poi_fused_add_all_reduce_4 adds what was reduced before). What multiplies as well is
# compute that communicates; of that, only compute is certain.

#: Collective libraries: NCCL, RCCL, HCCL, XCCL, MSCCL and MSCCL++, oneCCL, NVSHMEM, DeepEP, Transformer Engine.
_LIBRARY: Final = re.compile(r"nccl|rccl|hccl|xccl|msccl|oneccl|nvshmem|deep_ep::(?!layout)|userbuffers", re.IGNORECASE)
#: Kernels of vLLM, SGLang and AITER (custom all-reduce), PyTorch (symmetric memory), FlashInfer and TensorRT-LLM.
_COLLECTIVE: Final = re.compile(
    r"cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|put_signal_kernel|wait_signal_kernel",
    re.IGNORECASE,
)
_NO_COLLECTIVE: Final = re.compile(
    r"^triton_\w*fused_|(?:block|warp|wave|group|cta|thread|row|lane)_?all_?reduce|gemm|mat_?mul|attn|attention",
    re.IGNORECASE,
)
_ANONYMOUS: Final = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\})::")
_ARGUMENTS: Final = re.compile(r"[<(].*", re.DOTALL)


def is_collective(kernel: str) -> bool:
    """Tell a GPU's kernel that communicates with other devices."""
    own = _ARGUMENTS.sub("", _ANONYMOUS.sub("", kernel)).removeprefix("void ")
    return bool(_LIBRARY.search(own) or (_COLLECTIVE.search(own) and not _NO_COLLECTIVE.search(own)))


#: Kernels on an AI CPU that carry out a collective (allgatherAicpuKernel, HcclLaunchAicpuKernel), or what a fused
#: operator sends (MatmulAllReduceAicpu, beside MatmulAllReduce on the cores). CANN, msprof: KfcCalculator.
COLLECTIVE_ON_AI_CPU: Final = re.compile(
    r"aicpu_?kernel$|(?:reduce|gather|scatter|to_?all|broadcast|distribute)\w*aicpu$", re.IGNORECASE
)
#: Rows and tasks of an NPU that communicate: HCCL's operations, and its kernels on AI CPUs and vector cores.
NPU_COMMUNICATION: Final = re.compile(rf"^(hcom_|.*nccl)|aiv_?kernel$|{COLLECTIVE_ON_AI_CPU.pattern}", re.IGNORECASE)
