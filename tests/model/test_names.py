"""The table of names: each row against names as public recordings, headers and documentation have them."""

from __future__ import annotations

import re

import pytest

from npuperf.device.host_events import cause_of
from npuperf.model.names import TABLE, Purpose, Runtime, is_collective, names_for
from npuperf.readers.comm_groups import type_inside

#: Names as their sources write them, with the cause that host time in them has; None where the row tells no cause.
KNOWN: dict[tuple[Runtime, Purpose], tuple[str | None, tuple[str, ...]]] = {
    ("cuda", "call"): ("runtime", ("cudaGetDevice", "cudaStreamIsCapturing", "cuCtxGetCurrent")),
    ("hip", "call"): ("runtime", ("hipGetDevice", "hipStreamIsCapturing", "hipGetLastError", "hipEventRecord")),
    ("acl", "call"): (None, ("AscendCL@aclrtGetDevice", "aclrtGetCurrentContext", "Runtime@StreamCreate")),
    ("cuda", "launch"): ("launch", (
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cuLaunchKernel",
        "cuLaunchKernelEx")),
    ("hip", "launch"): ("launch", (
        "hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipExtLaunchKernel",
        "hipHccModuleLaunchKernel", "hipLaunchCooperativeKernel", "hipDrvLaunchKernelEx", "hipLaunchKernelExC",
        "hipModuleLaunchCooperativeKernel", "hipExtLaunchMultiKernelMultiDevice", "hipLaunchByPtr")),
    ("acl", "launch"): ("launch", (
        "Node@launch", "Runtime@KernelLaunch", "Model@execute", "AscendCL@aclrtLaunchKernelWithConfig",
        "rtKernelLaunchWithHandleV2")),
    ("ge", "launch"): ("launch", (
        "Launch", "LaunchKernelWithHandle", "LaunchKernelWithFlag", "AtomicLaunchKernelWithHandle", "[Launch]",
        "AicpuLaunchTfKernel", "AicpuLaunchCCKernel", "LaunchFFTSPlusTask", "LaunchMixKernelWithHandle",
        "LaunchHcomKernel", "LaunchCopyFlowH2D", "Node@LaunchKernelWithHandle")),
    ("cuda", "replay"): ("launch", ("cudaGraphLaunch", "cuGraphLaunch")),
    ("hip", "replay"): ("launch", ("hipGraphLaunch",)),
    ("acl", "replay"): ("launch", (
        "AscendCL@aclmdlRIExecuteAsync", "AscendCL@aclmdlExecute", "AscendCL@aclmdlExecuteAsync")),
    ("ge", "graph_run"): (None, ("TorchNpuGraphBase::Run", "ExecuteGraph", "RunGraphWithStreamAsync")),
    ("cuda", "wait"): ("sync", (
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
        "cuCtxSynchronize")),
    ("hip", "wait"): ("sync", ("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize")),
    ("acl", "wait"): ("sync", (
        "AscendCL@aclrtSynchronizeStream", "AscendCL@aclrtSynchronizeDevice", "Runtime@StreamSynchronize")),
    ("cuda", "blocking_copy"): ("sync", ("cudaMemcpy", "cudaMemcpy2D", "cuMemcpyDtoH_v2")),
    ("hip", "blocking_copy"): ("sync", ("hipMemcpy", "hipMemcpyWithStream", "hipMemcpyDtoH")),
    ("acl", "blocking_copy"): ("sync", ("AscendCL@aclrtMemcpy", "AscendCL@aclrtMemcpy2d")),
    ("torch", "read"): ("sync", ("aten::item", "aten::_local_scalar_dense")),
    ("cuda", "copy"): ("memory", ("cudaMemcpyAsync", "cudaMemsetAsync", "cuMemcpyHtoDAsync_v2", "cudaMemcpyPeerAsync")),
    ("hip", "copy"): ("memory", ("hipMemcpyAsync", "hipMemsetAsync", "hipMemcpyDtoDAsync")),
    ("acl", "copy"): ("memory", ("AscendCL@aclrtMemcpyAsync", "AscendCL@aclrtMemsetAsync", "Runtime@MemcpyAsync")),
    ("cuda", "allocate"): ("memory", (
        "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaMallocAsync", "cudaFreeHost", "cuMemCreate", "cuMemAlloc_v2")),
    ("hip", "allocate"): ("memory", (
        "hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree", "hipMallocAsync", "hipExtMallocWithFlags",
        "hipMemCreate")),
    ("acl", "allocate"): ("memory", (
        "AscendCL@aclrtMallocAlign32", "AscendCL@aclrtFree", "AscendCL@aclrtMallocHost", "AscendCL@aclrtMallocPhysical",
        "Runtime@DevMalloc", "Runtime@DevFree")),
    ("ge", "allocate"): ("memory", (
        "AllocMemHbm", "FreeMemHbm", "AllocBatchHbm", "FreeBatchHbm", "Node@AllocMemHbm", "AllocMemHost", "FreeMemory",
        "FreeMemHbmHoldAddr", "AllocModelOutTensor", "[AllocMemHbm]", "FreeTensorMemory", "AllocFixedFeatureMemory")),
    ("torch_npu", "allocate"): ("memory", ("PTA malloc", "PTA free")),
    ("cuda", "map"): ("memory", ("cudaHostRegister", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve")),
    ("hip", "map"): ("memory", ("hipHostRegister", "hipMemMap", "hipMemSetAccess", "hipMemAddressReserve")),
    ("acl", "map"): ("memory", (
        "AscendCL@aclrtMapMem", "AscendCL@aclrtReserveMemAddress", "AscendCL@aclrtHostRegister")),
    ("cuda", "holding"): ("memory", ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cuMemAlloc_v2")),
    ("hip", "holding"): ("memory", ("hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree")),
    ("acl", "holding"): ("memory", ("AscendCL@aclrtMalloc", "AscendCL@aclrtFreeHost")),
    ("cuda", "capture_begin"): ("capture", (
        "cudaStreamBeginCapture", "cuStreamBeginCapture_v2", "cudaStreamBeginCaptureToGraph")),
    ("hip", "capture_begin"): ("capture", ("hipStreamBeginCapture",)),
    ("acl", "capture_begin"): ("capture", ("AscendCL@aclmdlRICaptureBegin", "Runtime@rtStreamBeginCapture")),
    ("cuda", "capture_end"): ("capture", ("cudaStreamEndCapture", "cuStreamEndCapture")),
    ("hip", "capture_end"): ("capture", ("hipStreamEndCapture",)),
    ("acl", "capture_end"): ("capture", ("AscendCL@aclmdlRICaptureEnd", "Runtime@rtStreamEndCapture")),
    ("cuda", "capture"): ("capture", ("cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cuGraphInstantiate",
                                      "cudaGraphUpload", "cudaGraphExecUpdate")),
    ("hip", "capture"): ("capture", ("hipGraphInstantiate", "hipGraphInstantiateWithFlags", "hipGraphUpload")),
    ("acl", "capture"): ("capture", ("AscendCL@aclmdlRIBuildBegin", "AscendCL@aclmdlRIDestroy")),
    ("inductor", "capture"): ("capture", ("CUDAGraphNode.record (dynamo_timed)", "CUDAGraphNode.record")),
    ("cuda", "set_up"): ("runtime", ("cuModuleLoadData", "cuLibraryLoadData", "cuModuleGetFunction", "cudaSetDevice",
                                     "cuInit", "cuDevicePrimaryCtxRetain", "cudaFuncGetAttributes",
                                     "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuFuncSetAttribute")),
    ("hip", "set_up"): ("runtime", ("hipModuleLoadData", "hipModuleGetFunction", "hipSetDevice", "hipInit",
                                    "hipDevicePrimaryCtxGetState", "hipFuncSetAttribute",
                                    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor")),
    ("acl", "set_up"): (None, ("AscendCL@aclrtSetDevice", "AscendCL@aclrtCreateContext", "AscendCL@aclInit",
                               "Runtime@DevBinaryRegister", "HcclCommInitRootInfo")),
    ("cuda", "context"): ("memory", ("cudaFree",)),
    ("hip", "context"): ("memory", ("hipFree",)),
    ("cuda", "async"): (None, ("cudaStreamSynchronize", "cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventQuery")),
    ("hip", "async"): (None, ("hipStreamSynchronize", "hipMemcpyWithStream", "hipStreamWaitEvent", "hipEventQuery")),
    ("acl", "async"): (None, ("AscendCL@aclrtStreamWaitEvent", "AscendCL@aclrtQueryEventStatus",
                              "AscendCL@aclopCompileAndExecute", "Runtime@MemcpyAsync")),
    ("acl", "compile"): ("compile", ("AscendCL@opCompile", "GE@BuildGraph", "Model@BuildModel")),
    ("inductor", "compile"): ("compile", ("compile_inner (dynamo_timed)", "entire_frame_compile", "backend_compile")),
    ("acl", "tiling"): ("tiling", (
        "AscendCL@Add_Tiling", "Node@InferShape", "Node@Tiling", "AscendCL@aclnnAddGetWorkspaceSize",
        "aclnnAddGetWorkspaceSize")),
    ("ge", "tiling"): ("tiling", ("InferShape", "Tiling", "CacheableTiling", "[Tiling]", "CalcWorkspace")),
    ("acl", "operator"): ("execute", ("AscendCL@aclnnAdd", "AscendCL@aclCreateTensor", "aclnnAdd")),
    ("acl", "aclop"): ("aclop", ("AscendCL@aclopCompileAndExecute", "AscendCL@aclopExecuteV2")),
    ("hccl", "communication"): ("communication", (
        "HcclAllreduce", "hcom_allReduce_", "AscendCL@HcclAllReduce", "Communication@hcom_broadcast_", "Hccl@x")),
    ("cuda", "communication"): ("communication", ("ncclAllReduce", "ncclGroupEnd")),
    ("torch", "communication"): ("communication", (
        "nccl:all_reduce", "c10d::allreduce_", "_c10d_functional::all_reduce", "record_param_comms",
        "symm_mem::multimem_all_reduce_", "hccl:allreduce")),
    ("torch", "step"): ("step", ("ProfilerStep#12",)),
    ("torch", "optimizer"): ("optimizer", ("Optimizer.step#SGD.step",)),
    ("torch", "autograd"): ("autograd", ("autograd::engine::evaluate_function: MmBackward0", "AddmmBackward0")),
    ("torch", "data_loading"): ("data_loading", ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",)),
    ("torch", "gc"): ("gc", ("GC", "Python GC")),
    ("torch_npu", "torch_op"): ("torch_op", (
        "acl_memcpy_host_to_device", "contiguous_h_memRepoint", "format_contiguousV2", "empty_tensor")),
    ("torch", "module"): ("python", ("nn.Module: Linear_0", "DistributedDataParallel.forward")),
    ("torch", "torch_op"): ("torch_op", ("aten::mm", "npu::npu_fusion_attention", "TorchDynamo Cache Lookup")),
    ("inductor", "compiled"): ("compiled", (
        "## Call CompiledFxGraph fbvcwuqulrovfujd7iuc223hzjvp3lnu ##", "Torch-Compiled Region: 0/0", "CompiledFunction",
        "AOTDispatcher Runtime Wrapper Prologue", "Pregraph bytecode", "CUDAGraphNode.replay")),
    ("torch_npu", "queue"): ("queue", ("Enqueue", "Dequeue@aclnnAdd", "destroy_event", "record_event", "wait_event")),
}  # fmt: skip


def test_every_row_has_a_source_and_a_name_that_it_alone_is_for() -> None:
    assert {(row.runtime, row.purpose) for row in TABLE} == set(KNOWN)
    for row in TABLE:
        names = KNOWN[row.runtime, row.purpose][1]
        whole = re.compile(row.pattern, re.DOTALL)
        assert row.source and any(whole.fullmatch(name) for name in names), row


@pytest.mark.parametrize("key", KNOWN, ids=lambda key: "-".join(key))
def test_names_are_known_with_their_cause(key: tuple[Runtime, Purpose]) -> None:
    runtime, purpose = key
    cause, names = KNOWN[key]
    rows = [row for row in TABLE if row.purpose == purpose]
    for name in names:
        assert names_for(purpose).match(name), name
        found = {row.runtime for row in rows if re.fullmatch(row.pattern, name, re.DOTALL)}
        # CANN's layers stand before GE's kernels, too.
        assert runtime in found and found <= {runtime, *({"acl", "ge"} if {"acl", "ge"} & found else ())}, name
        if cause is not None:
            assert cause_of(name) == cause, name


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cuda warm-up", "range"),  # a user's range that begins like a call
        ("hipster dance", "range"),
        ("Launch the rockets", "range"),
        ("Allocate buffers", "range"),
        ("FreeMem() of mine", "range"),
        ("my destroy_event", "range"),
        ("Call CompiledFxGraphs of mine", "range"),
        ("cudaGraphLaunch", "launch"),  # replays, and captures nothing
        ("AscendCL@aclmdlRICaptureGetInfo", "runtime"),  # asked in eager mode, too
        ("cudaStreamGetCaptureInfo_v2", "runtime"),
    ],
)
def test_what_sounds_like_a_name_is_none(name: str, cause: str) -> None:
    assert cause_of(name) == cause


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allReduce"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", None),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "allReduce"),
        ("void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(c10::BFloat16*)", "allReduce"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(x)", "allReduce"),
        ("one_shot_all_reduce_kernel", "allReduce"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "allReduce"),
        ("void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)", "allReduce"),
        ("_ZN4vllm26cross_device_reduce_1stageI6__halfLi8EEEvPNS_8RankDataE", "allReduce"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(x)1, __nv_bfloat16>(y)",
         "allReduce"),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(x)", "allReduce"),
        ("mscclKernel_Sum_half_Simple(mscclAlgo*)", None),
        ("void deep_ep::internode_ll::dispatch<true, 3, 7168>(void*)", None),
        ("nvshmemi_transfer_rma_kernel", None),
    ],
)  # fmt: skip
def test_kernels_that_communicate(kernel: str, kind: str | None) -> None:
    assert is_collective(kernel)
    assert type_inside(kernel) == kind or kind is None


@pytest.mark.parametrize(
    "kernel",
    [
        "triton_poi_fused_add_all_reduce_4",  # adds what was reduced before
        "triton_red_fused_all_gather_into_tensor_mm_2",
        "block_all_reduce_sum_f32_f32_kernel(float*, float*, int)",
        "void softmax_kernel<warpAllReduce<float>>(float*)",  # among the arguments
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
        "kernel_gemm_allreduce_bf16",  # multiplies as well
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
        "void at::native::elementwise_kernel<128, 4, nccl::x>(int)",
    ],
)
def test_kernels_that_compute(kernel: str) -> None:
    assert not is_collective(kernel)
