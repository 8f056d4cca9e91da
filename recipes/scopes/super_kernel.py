"""A layer as one SuperKernel: torchair.scope.super_kernel. Static graphs of max-autotune only; Atlas A3.

npuperf profile -o plain -- python super_kernel.py plain
npuperf profile -o fused -- python super_kernel.py fused
npuperf analyze fused --before plain --plog ~/ascend/log
"""

import sys
from contextlib import nullcontext

import torch
import torch_npu  # noqa: F401  (registers the device)
import torchair

# feed-sync-all: kernels that start fewer cores than the SuperKernel may call SyncAll, and would hang without it.
# To look for breaks add ":strict-scope-check=bypass": plog (super_kernel_scope) names them, and a scope that breaks
# gets no SuperKernel then.
OPTIONS = "feed-sync-all=1"


class Layer(torch.nn.Module):
    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torchair.scope.super_kernel("layer", OPTIONS) if self.fused else nullcontext():
            return x + self.down(torch.nn.functional.gelu(self.up(x)))


def build(fused: bool, width: int = 4096) -> torch.nn.Module:
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(Layer(width, fused).half().npu(), backend=backend, dynamic=False, fullgraph=True)


if __name__ == "__main__":
    model = build(fused=sys.argv[1:] != ["plain"])
    batch = torch.randn(8, 4096, dtype=torch.float16).npu()
    for _ in range(40):
        model(batch)
    torch.npu.synchronize()
