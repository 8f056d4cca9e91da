"""Two branches on two streams, each with cores of its own, in captured graphs: npugraph_ex, or reduce-overhead.

Here a limit belongs to the stream, and is undone at the end of the block. Set it from one thread only, and before
CANN 9.0 not together with static kernel compilation. max-autotune has limits of operators: limit_core_num.py.
The limits are those that `npuperf analyze` proposes; verify them in a profile of this program with
`npuperf analyze ./result --expect-cores STREAM=CUBE,VECTOR`. Atlas A2 and A3.

python limit_stream_cores.py                    # torch_npu 7.3.0 and newer
python limit_stream_cores.py reduce-overhead    # TorchAir's older name, with scopes of torchair
"""

import sys

import torch
import torch_npu  # noqa: F401  (registers the device)

MAIN_LIMIT, SIDE_LIMIT = (16, 32), (8, 16)  # cube and vector cores; together no more than the chip has
TORCHAIR = sys.argv[1:] == ["reduce-overhead"]

if TORCHAIR:
    import torchair

    limit_core_num = torchair.scope.limit_core_num
else:
    limit_core_num = torch.npu.npugraph_ex.scope.limit_core_num


class Branches(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = torch.nn.Linear(width, width)
        self.experts = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side_stream = torch.npu.Stream()
        begun, done = torch.npu.Event(), torch.npu.Event()
        begun.record()
        with torch.npu.stream(side_stream):
            begun.wait(side_stream)
            with limit_core_num(*SIDE_LIMIT):
                side = torch.nn.functional.gelu(self.experts(x))
            done.record()
        with limit_core_num(*MAIN_LIMIT):
            main = torch.softmax(self.attention(x), -1)
        done.wait(torch.npu.current_stream())  # captured graphs order nothing between streams by themselves
        return main + side


def build(width: int = 4096) -> torch.nn.Module:
    module = Branches(width).half().npu()
    if not TORCHAIR:
        return torch.compile(module, backend="npugraph_ex", dynamic=False, fullgraph=True)
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    return torch.compile(
        module, backend=torchair.get_npu_backend(compiler_config=config), dynamic=False, fullgraph=True
    )


if __name__ == "__main__":
    model = build()
    batch = torch.randn(64, 4096, dtype=torch.float16).npu()
    for _ in range(40):
        model(batch)
    torch.npu.synchronize()
