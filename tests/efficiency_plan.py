"""A kernel table with planted counters, whose parts of peak × time are written down beside it.

20 cube cores at 1800 MHz: 294.912 TFLOPS, so that 10 ms are worth 2.949 12 TFLOP. Every product takes 10 ms, all of its
cores count cycles all the time, and half of these multiply: 1.474 56 TFLOP. [1024,640000] × [640000,1024] are
2 × 1024 × 1024 × 640000 = 1.342 177 28 TFLOP. Then 5 ms of an addition, after a gap of 5 ms.
"""

from __future__ import annotations

from pathlib import Path

from build import EPOCH
from msgspec import Struct

HEADER = (
    "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,"
    "Stream ID,OP State,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "aicore_time(us),aic_total_cycles,aic_mac_ratio,aic_scalar_ratio,aic_mte2_ratio,cube_utilization(%)"
)
PEAK = 20 * 1800e6 * 8192
MS = 1_000_000
#: FLOP of one product: what its cores do, and what of it its shapes ask for.
BUSY, USEFUL = 1.47456e12, 1.34217728e12
#: All that 40 ms are worth.
WHOLE = 11.79648e12
FITTING = "1024,640000;640000,1024"
#: Asks for 1.61 TFLOP, more than is done.
TOO_MUCH = "1024,768000;768000,1024"


class Product(Struct, frozen=True):
    """One product of 10 ms; ``unit``: of what its cores do beside, the busiest."""

    shapes: str = FITTING
    mac: float = 0.5
    unit: str = "mte2"


def table(path: Path, *products: Product, counters: bool = True) -> Path:
    """Write one step: the products one after the other, a gap of 5 ms and an addition of as long."""
    lines, at = [HEADER], EPOCH
    for one in products:
        beside = {"mte2": "0.1,0.4", "scalar": "0.4,0.1", "": ","}[one.unit]
        counted = f"10000.000,360000000,{one.mac},{beside},100.000" if counters else ",,,,,"
        inner = one.shapes.split(";")
        out = f"{inner[0].split(',')[0]},{inner[-1].split(',')[-1]}"
        lines.append(_row("MatMulV3", "AI_CORE", at, 10 * MS, 20, one.shapes, "DT_BF16;DT_BF16", "ND;ND", out, counted))
        at += 10 * MS
    at += 5 * MS
    lines.append(_row("Add", "AI_VECTOR_CORE", at, 5 * MS, 40, "1024,1024;1024,1024", "DT_BF16;DT_BF16", "ND;ND",
                      "1024,1024", ",,,,,"))  # fmt: skip
    path.mkdir(parents=True, exist_ok=True)
    (path / "kernel_details.csv").write_text("\n".join(lines) + "\n")
    return path / "kernel_details.csv"


def _row(type_: str, core: str, at: int, dur: int, block: int, shapes: str, dtypes: str, formats: str, out: str,
         counted: str) -> str:  # fmt: skip
    start = f"{at // 1000}.{at % 1000:03d}"
    return (
        f'11,0,aclnn{type_}_{type_}_{type_},{type_},{core},{start}\t,{dur / 1000:.3f},0,{block},0,2,static,"{shapes}",'
        f'{dtypes},{formats},"{out}",DT_BF16,ND,{counted}'
    )
