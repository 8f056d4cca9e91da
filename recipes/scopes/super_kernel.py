"""SuperKernels over a quantized layer: torchair.scope.super_kernel. Static graphs of max-autotune; Atlas A3, inference.

Both operators can be fused. What comes out must not change:

python super_kernel.py compare
npuperf profile -o plain -- python super_kernel.py plain
npuperf profile -o fused -- python super_kernel.py fused
npuperf analyze fused --before plain --plog ~/ascend/log
"""

import sys
from contextlib import nullcontext

import torch
import torch_npu
import torchair

LAYERS, TOKENS, WIDTH = 6, 64, 4096
# feed-sync-all: kernels that start fewer cores than the SuperKernel may call SyncAll, and would hang without it.
# To look for breaks add ":strict-scope-check=bypass" in a run of its own, with ASCEND_GLOBAL_LOG_LEVEL=2 in its
# environment (CANN logs errors only otherwise): plog (super_kernel_scope) names them, and a scope that breaks gets no
# SuperKernel then.
OPTIONS = "feed-sync-all=1"


class Layers(torch.nn.Module):
    """Matrix products of int8, each followed by dequantization, SwiGLU and quantization for the next one."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(
        self, tokens: torch.Tensor, token_scale: torch.Tensor, weights: list[torch.Tensor], scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for layer, weight in enumerate(weights):
            # a name is one range, which GE cuts at every other operator between two uses of it: one name per layer
            with torchair.scope.super_kernel(f"layer_{layer}", OPTIONS) if self.fused else nullcontext():
                product = torch_npu.npu_quant_matmul(
                    tokens, weight, scale, pertoken_scale=token_scale, output_dtype=torch.bfloat16
                )
                tokens, token_scale = torch_npu.npu_dequant_swiglu_quant(product, activate_left=True, quant_mode=1)
        return tokens, token_scale


def build(fused: bool) -> torch.nn.Module:
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(Layers(fused), backend=backend, dynamic=False, fullgraph=True)


def inputs() -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    tokens = torch.randint(-10, 10, (TOKENS, WIDTH), dtype=torch.int8).npu()
    weights = [torch.randint(-10, 10, (WIDTH, 2 * WIDTH), dtype=torch.int8).npu() for _ in range(LAYERS)]
    return tokens, torch.full((TOKENS,), 0.01).npu(), weights, torch.full((2 * WIDTH,), 0.01).npu()


def compare() -> bool:
    """Tell whether the outputs with and without SuperKernels are the same, bit by bit."""
    given = inputs()
    plain, fused = build(fused=False)(*given), build(fused=True)(*given)
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(plain, fused, strict=True))


if __name__ == "__main__":
    how = sys.argv[1] if len(sys.argv) > 1 else "compare"
    if how == "compare":
        same = compare()
        print("outputs are the same" if same else "outputs differ: do not use these scopes")
        sys.exit(0 if same else 1)
    model, batch = build(fused=how == "fused"), inputs()
    for _ in range(40):
        model(*batch)
    torch.npu.synchronize()
