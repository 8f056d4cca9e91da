"""Two branches on two streams, each with cores of its own: torchair.scope.limit_core_num, in max-autotune.

Here a limit is an attribute of each operator in the block. In captured graphs (npugraph_ex, reduce-overhead) it belongs
to the stream: limit_stream_cores.py.
The limits are those that `npuperf analyze` proposes; verify them in a profile of this program with
`npuperf analyze ./result --expect-cores STREAM=CUBE,VECTOR`. Atlas A2 and A3.
"""

import torch
import torch_npu  # noqa: F401  (registers the device)
import torchair

MAIN_LIMIT, SIDE_LIMIT = (16, 32), (8, 16)  # cube and vector cores; together no more than the chip has


class Branches(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = torch.nn.Linear(width, width)
        self.experts = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torchair.scope.npu_stream_switch("experts"):
            with torchair.scope.limit_core_num(*SIDE_LIMIT):
                side = torch.nn.functional.gelu(self.experts(x))
        with torchair.scope.limit_core_num(*MAIN_LIMIT):
            main = torch.softmax(self.attention(x), -1)
        return main + side


def build(width: int = 4096) -> torch.nn.Module:
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(Branches(width).half().npu(), backend=backend, dynamic=False, fullgraph=True)


if __name__ == "__main__":
    model = build()
    batch = torch.randn(64, 4096, dtype=torch.float16).npu()
    for _ in range(40):
        model(batch)
    torch.npu.synchronize()
