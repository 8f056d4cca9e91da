"""What a kernel is asked to do: every kind by hand, products and masks by counting, real kernels by their counters."""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from npuperf.device.formulas import KINDS, Cost, cost_of, has_formula, shapes_of
from npuperf.model.labels import Operands

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def cost(
    type: str,
    shapes: str,
    dtypes: str = "",
    out: str | None = None,
    out_dtypes: str = "",
    *,
    formats: str = "",
    out_formats: str = "",
    hf32: bool | None = None,
    core: str | None = None,
) -> Cost | None:
    """Return the cost of a kernel as an export writes it; one type or format stands for all of them."""
    told = shapes_of(shapes)
    if told is None:
        return None
    outs = out.split(";") if out is not None else []

    def spread(text: str, count: int) -> tuple[str, ...]:
        cells = text.split(";") if text else []
        return tuple(cells * count if len(cells) == 1 else cells)

    out_dtypes = out_dtypes or dtypes.split(";")[0]
    operands = Operands(
        dtypes=spread(dtypes, len(told)), formats=spread(formats or "ND", len(told)),
        out_dtypes=spread(out_dtypes, len(outs)), out_formats=spread(out_formats or "ND", len(outs)),
        out_shapes=tuple(outs), hf32=hf32,
    )  # fmt: skip
    return cost_of(type, core, told, operands)


def flop(found: Cost | None) -> tuple[float, float]:
    """Return [least, most] of a cost that there is."""
    assert found is not None
    return found.least, found.most


# -- Matrix products. 2 · 4096 · 3072 · 1024 = 25 769 803 776.


@pytest.mark.parametrize(
    ("shapes", "out"),
    [
        ("4096,1024;1024,3072", "4096,3072"),
        ("4096,1024;3072,1024", "4096,3072"),
        ("1024,4096;1024,3072", "4096,3072"),
        ("1024,4096;3072,1024", "4096,3072"),
        ("4096,1024;1024,3072;3072", "4096,3072"),
    ],
)
def test_the_output_decides_what_was_transposed(shapes: str, out: str) -> None:
    """All four ways of one product, and a bias."""
    found = cost("MatMulV3", shapes, "BF16", out)
    assert found is not None and flop(found) == (25_769_803_776, 25_769_803_776)
    assert (found.dims, found.rate, found.note) == ((1, 4096, 3072, 1024), 8192, "")


def test_a_shape_that_can_be_both_ways_is_told_by_the_output() -> None:
    """8192 × 512 by 8192 × 512 is 512 × 512 over 8192, or 8192 × 8192 over 512."""
    few, many = 2 * 512 * 512 * 8192, 2 * 8192 * 8192 * 512
    assert flop(cost("MatMul", "8192,512;8192,512", "FLOAT16", "512,512")) == (few, few)
    assert flop(cost("MatMul", "8192,512;8192,512", "FLOAT16", "8192,8192")) == (many, many)
    open_ = cost("MatMul", "8192,512;8192,512", "FLOAT16")
    assert open_ is not None and (flop(open_), open_.dims, open_.note) == ((few, many), None, "transposes")
    assert open_.bytes is None  # of the output nothing is known


@pytest.mark.parametrize("type", ["MatMul", "MatMulV2", "MatMulV3", "MatMulCommon", "BatchMatMul", "BatchMatMulV2"])
def test_products_counted_one_by_one(type: str) -> None:
    """Random products of ones, transposed at random: numpy's result has a multiply-add in every unit of its sum."""
    rng = random.Random(type)
    for _ in range(50):
        batch = [rng.randint(1, 3) for _ in range(rng.randint(0, 2) if "Batch" in type else 0)]
        m, n, k = (rng.randint(1, 9) for _ in range(3))
        sides = [np.ones([*batch, m, k]), np.ones([*batch, k, n])]
        made = np.matmul(*sides)
        stored = [side.swapaxes(-1, -2) if rng.random() < 0.5 else side for side in sides]
        if batch and rng.random() < 0.3:
            stored[1] = stored[1][(0,) * len(batch)]  # one matrix for the whole batch
        text = ";".join(",".join(map(str, side.shape)) for side in stored)
        found = cost(type, text, "FLOAT16", ",".join(map(str, made.shape)))
        assert flop(found) == (2 * made.sum(), 2 * made.sum()), text
        assert found is not None and found.dims == (math.prod(batch), m, n, k)


def test_what_is_no_product_has_no_cost() -> None:
    """The file pipe_utilization was edited by hand: 81920 rows for 8192."""
    for shapes, out in [
        ("81920,1536;8192,4096", "1536,4096"),
        ("8192,15365;8192,4096", "1536,4096"),
        ("81920,4096;8192,512", "4096,512"),
        ("4096,1024;1024,3072", "4096,3073"),
        ("4096;1024", "4096"),
        ("2,64,32;3,32,64", "2,64,64"),
        ("2,64,32;2,32,64", "3,64,64"),
        ("4096,1024", "4096,1024"),
    ]:
        assert cost("MatMulV3", shapes, "BF16", out) is None, shapes
    assert has_formula("MatMulV3") and not has_formula("matmul_bias_activation_kernel")


@pytest.mark.parametrize(
    ("dtypes", "hf32", "rate"),
    [
        ("BF16;BF16", False, 8192), ("FLOAT16;FLOAT16", True, 8192), ("INT8;INT8", None, 16384),
        ("FLOAT32;FLOAT32", True, 4096), ("FLOAT32;FLOAT32", False, 2048), ("FLOAT32;FLOAT32", None, 0),
        ("BF16;INT8", None, 8192), ("FLOAT16;INT4", None, 8192), ("INT4;INT4", None, 0), ("INT8;FLOAT16", None, 0),
        ("", None, 0), ("FLOAT8_E4M3FN;FLOAT8_E4M3FN", None, 0),
    ],
)  # fmt: skip
def test_the_rate_is_that_of_the_type(dtypes: str, hf32: bool | None, rate: int) -> None:
    """Of a type without a known rate the FLOP are known, and what they are in FP16 units is not."""
    found = cost("MatMulV2", "64,32;32,16", dtypes, "64,16", "FLOAT32", hf32=hf32)
    assert found is not None and (found.rate, found.least) == (rate, 65_536)


def test_padded_formats_leave_fifteen_rows_open() -> None:
    """FRACTAL_NZ 64,9496,16,16 is 151 921 … 151 936 rows by 1009 … 1024 columns; what is ND beside it is exact."""
    found = cost("MatMulV2", "9496,256,16,16;64,256,16,16", "BF16", "64,9496,16,16", formats="FRACTAL_NZ",
                 out_formats="FRACTAL_NZ")  # fmt: skip
    assert flop(found) == (2 * 151_921 * 1009 * 4081, 2 * 151_936 * 1024 * 4096)
    assert found is not None and (found.dims, found.note) == (None, "padded")
    known = cost("MatMulV2", "100,70;3,5,16,16", "FLOAT16", "100,40", formats="ND;FRACTAL_NZ")
    assert known is not None and (flop(known), known.dims) == ((560_000, 560_000), (1, 100, 40, 70))
    int8 = cost("QuantBatchMatmulV3", "64,512;8,32,16,32;256", "INT8;INT8;UINT64", "64,256", "BF16",
                formats="ND;FRACTAL_NZ;ND")  # fmt: skip
    assert int8 is not None and (flop(int8), int8.rate) == ((16_777_216, 16_777_216), 16384)
    origin = cost("MatMulV2", "100,70;70,40", "FLOAT16", "100,40", formats="FRACTAL_NZ")  # the shape before padding
    assert flop(origin) == (560_000, 560_000)


def test_weights_that_are_quantised() -> None:
    """2 · 16 · 4096 · 1024 = 134 217 728; bytes: 16·1024·2 + 1024·4096 + 4096·2 + 16·4096·2."""
    found = cost("WeightQuantBatchMatmulV2", "16,1024;1024,4096;1,4096", "BF16;INT8;BF16", "16,4096", "BF16")
    assert found is not None and (found.least, found.rate) == (134_217_728, 8192)
    assert found.bytes == (4_366_336, 4_366_336)


def test_groups_are_data() -> None:
    """Eight experts, 4096 rows for all of them: 2 · 4096 · 1024 · 2048 = 17 179 869 184 at most."""
    most = 17_179_869_184
    for shapes, out in [
        ("4096,1024;8,1024,2048;8", "4096,2048"),
        ("4096,1024;8,2048,1024;8", "4096,2048"),
        ("4096,1024;1024,2048;1024,2048;2", "4096,2048"),
        ("1024,4096;4096,2048;8", "8,1024,2048"),
        ("4096,1024;4096,2048;8", "8,1024,2048"),
    ]:
        dtypes = ";".join(["BF16"] * shapes.count(";") + ["INT64"])
        found = cost("GroupedMatmul", shapes, dtypes, out, "BF16")
        assert found is not None and (flop(found), found.dims, found.note) == ((0, most), None, "groups"), shapes
    apart = cost("GroupedMatmul", "10,20;30,20;20,5;20,5", "FLOAT16", "10,5;30,5")
    assert apart is not None and (flop(apart), apart.rate) == ((8000, 8000), 8192)  # 2 · 20 · 5 · (10 + 30)
    assert cost("GroupedMatmul", "10,20;30,20;20,5;20,5", "FLOAT16", "10,5;31,5") is None
    assert cost("GroupedMatmul", "10,20;30,20;40,20;20,5;20,5", "FLOAT16", "10,5;30,5;40,5") is None
    assert cost("GroupedMatmul", "2,10,20;20,5", "FLOAT16", "10,5") is None
    for shapes, out in [("40,20;20,5;20,5", "10,5;30,5"), ("10,20;30,20;20,5;20,5", "40,5")]:  # one x, one y for all
        whole = cost("GroupedMatmul", shapes, "FLOAT16", out)
        assert whole is not None and (flop(whole), whole.note) == ((8000, 8000), ""), shapes
    added = cost(
        "GroupedMatmulAdd", "4096,1024;4096,2048;8;8,1024,2048", "BF16;BF16;INT64;FLOAT32", "8,1024,2048", "FLOAT32"
    )
    assert added is not None and flop(added) == (0, most)
    nz = cost("GroupedMatmul", "4096,1024;8,64,64,16,32;8", "INT8;INT8;INT64", "4096,2048", "INT32",
              formats="ND;FRACTAL_NZ;ND")  # fmt: skip
    assert nz is not None and (nz.most, nz.rate) == (most, 16384)
    swiglu = cost("GroupedMatmulSwigluQuant", "4096,1024;8,1024,2048;8,2048;4096;8", "INT8;INT8;FLOAT32;FLOAT32;INT64",
                  "4096,1024;4096", "INT8;FLOAT32")  # fmt: skip
    assert swiglu is not None and flop(swiglu) == (0, most)
    routing = cost("GroupedMatmulFinalizeRouting", "4096,1024;8,1024,2048;8", "INT8;INT8;INT64", "512,2048", "FLOAT32")
    assert routing is not None and flop(routing) == (0, most)


def test_rows_that_are_gathered_or_scattered_on_the_way() -> None:
    """2 · 4096 · 1024 · 512 = 4 294 967 296, whichever side has the rows of one rank."""
    assert flop(cost("AllGatherMatmul", "512,1024;1024,512", "BF16", "4096,512;4096,1024")) == (4_294_967_296,) * 2
    assert flop(cost("MatmulReduceScatter", "4096,1024;512,1024", "BF16", "512,512")) == (4_294_967_296,) * 2


def test_both_products_of_a_feed_forward_layer() -> None:
    """64 tokens, 1024 → 2 · 512 (gated) → 1024: 2 · 64 · (1024 · 1024 + 512 · 1024) = 201 326 592."""
    plain = cost("FFN", "4,16,1024;1024,1024;512,1024", "BF16", "4,16,1024")
    assert plain is not None and (flop(plain), plain.rate) == ((201_326_592, 201_326_592), 8192)
    experts = cost("FFN", "64,1024;8,1024,1024;8,512,1024;8", "BF16;BF16;BF16;INT64", "64,1024", "BF16")
    assert experts is not None and (flop(experts), experts.note) == ((0, 201_326_592), "groups")
    rates = {"BF16;INT8": 8192, "INT8;INT8": 16384, "INT8;BF16": 0, "BF16;FLOAT32": 0}  # of tokens and of weights
    for types, rate in rates.items():
        mixed = cost("FFN", "64,1024;1024,1024;512,1024", f"{types};{types.split(';')[1]}", "64,1024", "BF16")
        assert mixed is not None and (flop(mixed), mixed.rate) == ((201_326_592, 201_326_592), rate), types
    assert cost("FFN", "64,1000;1024,1024;512,1024", "BF16", "64,1024") is None
    assert cost("FFN", "64,1024;1024,1024;512,1000", "BF16", "64,1024") is None


def test_the_projections_of_mla() -> None:
    """Tokens 32; weights 7168·1536 + 1536·24576 + 128·128·512 + 7168·576 = 61 276 160 elements … times 2 · 32."""
    shapes = "32,7168;7168,1536;1536,24576;128,128,512;7168,576;1536;512"
    assert flop(cost("MlaProlog", shapes, "BF16", "32,128,512")) == (3_921_674_240,) * 2


# -- Convolutions.


def test_convolutions_counted_one_by_one() -> None:
    """Random convolutions of ones without a border: every unit of the result is a multiply-add."""
    rng = random.Random(3)
    for _ in range(30):
        n, groups, across, out_channels = (rng.randint(1, 3) for _ in range(4))
        kh, kw, oh, ow = (rng.randint(1, 3) for _ in range(4))
        x, w = np.ones((n, groups * across, oh + kh - 1, ow + kw - 1)), np.ones((groups * out_channels, across, kh, kw))
        adds = 0
        for i in range(n):
            for o in range(groups * out_channels):
                channels = x[i, o // out_channels * across :][:across]
                adds += sum((channels[:, r : r + kh, c : c + kw] * w[o]).sum() for r in range(oh) for c in range(ow))
        xs, ws, ys = (",".join(map(str, s)) for s in (x.shape, w.shape, (n, groups * out_channels, oh, ow)))
        exact = (2 * adds, 2 * adds)
        assert flop(cost("Conv2D", f"{xs};{ws}", "FLOAT16", ys, formats="NCHW", out_formats="NCHW")) == exact
        assert flop(cost("Conv2DTranspose", f"4;{ys};{ws}", "INT32;FLOAT16;FLOAT16", xs, "FLOAT16", formats="NCHW",
                         out_formats="NCHW")) == exact  # fmt: skip
        assert flop(cost("Conv2DBackpropInput", f"4;{ws};{ys}", "INT32;FLOAT16;FLOAT16", xs, "FLOAT16", formats="NCHW",
                         out_formats="NCHW")) == exact  # fmt: skip
        assert flop(cost("Conv2DBackpropFilter", f"{xs};4;{ys}", "FLOAT16;INT32;FLOAT16", ws, "FLOAT16", formats="NCHW",
                         out_formats="NCHW")) == exact  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_convolutions_of_volumes_by_counting(seed: int) -> None:
    """One more direction, and either order of the channels; of six sizes nobody knows which is which."""
    rng = random.Random(seed)
    n, inside, out, *window = (rng.randint(1, 3) for _ in range(6))
    sizes = [rng.randint(w, 4) for w in window]
    left = [size - w + 1 for size, w in zip(sizes, window, strict=True)]
    count = sum(1 for _ in itertools.product(*map(range, (n, out, inside, *left, *window))))
    for order, kernel, x, w, y in (
        ("NCDHW", "NCDHW", (n, inside, *sizes), (out, inside, *window), (n, out, *left)),
        ("NDHWC", "DHWCN", (n, *sizes, inside), (*window, inside, out), (n, *left, out)),
    ):
        xs, ws, ys = (",".join(map(str, shape)) for shape in (x, w, y))
        told = {"formats": f"{order};{kernel}", "out_formats": order}
        assert flop(cost("Conv3D", f"{xs};{ws}", "FLOAT16", ys, **told)) == (2 * count, 2 * count)
        assert cost("Conv3D", f"1,{xs};{ws}", "FLOAT16", ys, **told) is None


def test_convolutions_in_blocks_of_channels() -> None:
    """NC1HWC0 and FRACTAL_Z as a real ResNet-like step has them, FP32 in blocks of 8.

    185 … 192 channels in, 384 out (the bias), a window of 9 (216 / 24), 32 · 13 · 13 = 5408 positions.
    """
    found = cost("Conv2D", "32,24,13,13,8;216,24,16,8;384", "FLOAT32", "32,48,13,13,8",
                 formats="NC1HWC0;FRACTAL_Z;NCHW", out_formats="NC1HWC0", hf32=True)  # fmt: skip
    assert found is not None and (found.rate, found.note) == (4096, "padded")
    assert flop(found) == (2 * 5408 * 384 * 185 * 9, 2 * 5408 * 384 * 192 * 9)
    back = cost("Conv2DBackpropFilter", "32,24,13,13,8;4;32,48,13,13,8", "FLOAT32;INT32;FLOAT32", "216,24,16,8",
                "FLOAT32", formats="NC1HWC0;NCHW;NC1HWC0", out_formats="FRACTAL_Z", hf32=True)  # fmt: skip
    assert flop(back) == (2 * 5408 * 377 * 185 * 9, 2 * 5408 * 384 * 192 * 9)
    cube = cost("Conv3D", "1,4,2,8,8,16;54,2,16,16", "FLOAT16", "1,4,2,8,8,16", formats="NDC1HWC0;FRACTAL_Z_3D",
                out_formats="NDC1HWC0")  # fmt: skip
    assert flop(cube) == (2 * 256 * 17 * 17 * 27, 2 * 256 * 32 * 32 * 27)
    grouped = cost("Conv2D", "1,4,8,8,16;18,1,16,16", "FLOAT16", "1,4,8,8,16", formats="NC1HWC0;FRACTAL_Z",
                   out_formats="NC1HWC0")  # fmt: skip
    assert grouped is None  # N1 is not that of 64 channels: groups, of which the file does not say how many
    for weight in ("36,1,16,16", "18,4,16,16"):
        assert cost("Conv2D", f"1,4,8,8,16;{weight}", "FLOAT16", "1,4,8,8,16", formats="NC1HWC0;FRACTAL_Z",
                    out_formats="NC1HWC0") is None  # fmt: skip
    assert cost("Conv2D", "1,3,8,8;8,3,3,3", "FLOAT16", "1,8,6,6") is None  # ND: which size is which?


# -- Attention.

_FA = "4096,1,2048;4096,1,1024;4096,1,1024;;;;2048,2048;;;;;;;;"
_FA_TYPES = "BF16;BF16;BF16;BF16;UINT8;BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT32;FLOAT32;FLOAT32"
_FA_OUT, _FA_OUT_TYPES = "1,16,4096,8;1,16,4096,8;;4096,1,2048", "FLOAT32;FLOAT32;BF16;BF16"


def test_causal_attention_of_a_real_step() -> None:
    """S,B,H; 16 heads of 128, 8 of keys: 4 · 16 · 128 · (4096 · 4097 / 2) = 68 736 253 952; backward 2.5 times that."""
    found = cost("FlashAttentionScore", _FA, _FA_TYPES, _FA_OUT, _FA_OUT_TYPES)
    assert found is not None and (found.rate, found.note) == (8192, "causal")  # the mask is no type of the product
    assert flop(found) == (68_736_253_952, 68_736_253_952)
    assert found.vector == (671_252_480, 671_252_480)  # 5 · 16 · 8 390 656
    shapes = "4096,1,2048;4096,1,1024;4096,1,1024;4096,1,2048;2048,2048;1,16,4096,8;1,16,4096,8;;4096,1,2048;;;;;;"
    types = "BF16;BF16;BF16;BF16;BOOL;FLOAT32;FLOAT32;BF16;BF16;INT64;FLOAT32;FLOAT32;FLOAT32;FLOAT32;FLOAT32"
    back = cost("FlashAttentionScoreGrad", shapes, types, "4096,1,2048;4096,1,1024;4096,1,1024;;;", "BF16")
    assert flop(back) == (171_840_634_880, 171_840_634_880)


@pytest.mark.parametrize(
    ("q", "kv", "stats"),
    [
        ("2,8,1024,64", "2,8,2048,64", "2,8,1024,8"),  # BNSD
        ("2,1024,8,64", "2,2048,8,64", "2,8,1024,8"),  # BSND
        ("2,1024,512", "2,2048,512", "2,8,1024,8"),  # BSH
        ("1024,2,512", "2048,2,512", "2,8,1024,8"),  # SBH
        ("2,8,1024,64", "2,2,2048,64", "2,8,1024,8"),  # four heads of queries to one of keys
        ("2,1024,512", "2,2048,128", "2,8,1024,8"),
    ],
)
def test_layouts_are_told_by_the_maxima(q: str, kv: str, stats: str) -> None:
    """Without a mask all of it: 4 · 2 · 8 · 1024 · 2048 · 64 = 8 589 934 592."""
    found = cost(
        "FlashAttentionScore", f"{q};{kv};{kv}", "FLOAT16", f"{stats};{stats};;{q}", "FLOAT32;FLOAT32;FLOAT16;FLOAT16"
    )
    assert found is not None and (flop(found), found.note) == ((8_589_934_592, 8_589_934_592), "")


def test_maxima_that_fit_no_layout() -> None:
    """Of another length, or two that contradict each other."""
    for stats in ("2,8,1000,8;2,8,1000,8", "2,8,1024,8;2,4,1024,8"):
        found = cost("FlashAttentionScore", "2,1024,512;2,1024,512;2,1024,512", "FLOAT16", f"{stats};;2,1024,512",
                     "FLOAT32;FLOAT32;FLOAT16;FLOAT16")  # fmt: skip
        assert found is None, stats


def test_a_compressed_mask_tells_no_length() -> None:
    """2048 × 2048 beside 2048 by 4096 of either layout: sequences of 2048, or longer ones with a compressed mask."""
    found = cost("FlashAttentionScore", "2048,4096,64;2048,4096,64;2048,4096,64;2048,2048", "BF16;BF16;BF16;BOOL")
    assert found is not None and "layout" in found.note


def test_a_mask_of_the_lengths_hides_what_it_likes() -> None:
    """8 sequences' heads of 4096: half and a bit, or all; the edited shape of 511 columns is none of 3 or 4 heads."""
    types = "BF16;BF16;BF16;BOOL"
    out, out_types = "2,4,4096,8;2,4,4096,8;;4096,2,512", "FLOAT32;FLOAT32;BF16;BF16"
    found = cost("FlashAttentionScore", "4096,2,512;4096,2,512;4096,2,512;4096,4096", types, out, out_types)
    assert found is not None and flop(found) == (34_368_126_976, 68_719_476_736)
    assert found.note == "mask"
    edited = "2,3,4096,8;2,4,4096,8;;4096,2,512"
    assert cost("FlashAttentionScore", "4096,2,511;4096,2,512;4096,2,512;4096,4096", types, edited, out_types) is None
    same = cost("FlashAttentionScore", "1,1,2048,64;1,1,2048,64;1,1,2048,64;2048,2048", types,
                "1,1,2048,8;1,1,2048,8;;1,1,2048,64", out_types)  # fmt: skip
    assert same is not None and same.note == "mask"  # may be compressed, may be the mask itself
    prefix = cost("FlashAttentionScore", "1,1,4096,64;1,1,4096,64;1,1,4096,64;3072,2048", types,
                  "1,1,4096,8;1,1,4096,8;;1,1,4096,64", out_types)  # fmt: skip
    assert prefix is not None and flop(prefix) == (2_148_007_936, 4_294_967_296)


def test_causal_pairs_counted_one_by_one() -> None:
    """Triangles of ones, aligned at the first and at the last token; a compressed mask tells not which."""
    rng = random.Random(1)
    for _ in range(40):
        q, kv = rng.randint(1, 60), rng.randint(1, 60)
        first, last = np.tril(np.ones((q, kv))).sum(), np.tril(np.ones((q, kv)), kv - q).sum()
        found = cost("FlashAttentionScore", f"1,1,{q},16;1,1,{kv},16;1,1,{kv},16;2048,2048",
                     "FLOAT16;FLOAT16;FLOAT16;BOOL", f"1,1,{q},8;1,1,{q},8;;1,1,{q},16",
                     "FLOAT32;FLOAT32;FLOAT16;FLOAT16")  # fmt: skip
        assert flop(found) == (64 * min(first, last), 64 * max(first, last)), (q, kv)


def test_packed_sequences_are_between_equal_and_one() -> None:
    """T, N, D: any lengths of that number and sum, with and without a causal mask."""
    rng = random.Random(2)
    out_types = "FLOAT32;FLOAT32;BF16;BF16"
    for _ in range(60):
        lengths = [rng.randint(1, 40) for _ in range(rng.randint(2, 6))]
        t, n = sum(lengths), len(lengths)
        tensors, out = f"{t},4,32;{t},2,32;{t},2,32", f"{t},4,8;{t},4,8;;{t},4,32"
        whole, half = sum(s * s for s in lengths), sum(s * (s + 1) // 2 for s in lengths)
        low, high = flop(
            cost("FlashAttentionScore", f"{tensors};{n};{n}", "BF16;BF16;BF16;INT64;INT64", out, out_types)
        )
        assert low <= 4 * 4 * 32 * whole <= high == 512 * t * t
        assert low > 512 * (t * t // n - 1)
        masked = cost(
            "FlashAttentionScore", f"{tensors};2048,2048;{n};{n}", "BF16;BF16;BF16;BOOL;INT64;INT64", out, out_types
        )
        assert flop(masked)[0] <= 512 * half <= flop(masked)[1]
        assert masked is not None and masked.note == "mask lengths"
    unknown = cost("FlashAttentionScore", "100,4,32;100,2,32;100,2,32;;", "BF16;BF16;BF16;INT64;INT64",
                   "100,4,8;100,4,8;;100,4,32", out_types)  # fmt: skip
    assert flop(unknown) == (512 * 100, 512 * 100 * 100)
    one = "100,4,32;100,2,32;100,2,32;1"  # may be where the positions begin
    assert flop(cost("FlashAttentionScore", one, "BF16;BF16;BF16;INT64", "100,4,8;100,4,8;;100,4,32", out_types)) == (
        512 * 100, 512 * 100 * 100)  # fmt: skip
    other = cost("FlashAttentionScore", "100,4,32;50,2,32;50,2,32;3;3", "BF16;BF16;BF16;INT64;INT64",
                 "100,4,8;100,4,8;;100,4,32", out_types)  # fmt: skip
    assert flop(other) == (0, 512 * 100 * 50)  # whose queries have which keys is data


@pytest.mark.parametrize("stats", [True, False], ids=["with maxima", "without"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_any_attention_lies_between_least_and_most(stats: bool, backward: bool) -> None:
    """Random heads, lengths, layouts and masks, counted pair by pair; with maxima and no mask they are exact."""
    rng = random.Random(7)
    exact = 0
    for _ in range(150):
        b, heads, share, q, d = (rng.choice(c) for c in ((1, 2, 3), (1, 2, 4), (1, 2), (5, 16, 40), (16, 32)))
        n, kv, dv = heads * share, rng.choice((q, 7, 64)), rng.choice((d, 16))
        hides = rng.choice(("nothing", "causal", "own"))
        seen = (
            np.ones((q, kv)) if hides == "nothing" else np.tril(np.ones((q, kv)), kv - q if rng.random() < 0.5 else 0)
        )
        if hides == "own":
            seen = np.maximum(seen, rng.random() < 0.5)  # a mask that hides nothing, or what a causal one does
        products = (3 * d + 2 * dv) if backward else d + dv
        truth = 2 * b * n * int(seen.sum()) * products

        def shaped(count: int, length: int, width: int, layout: str, b: int = b) -> str:
            sizes = {"B": b, "S": length, "N": count, "D": width, "H": count * width}
            return ",".join(str(sizes[axis]) for axis in layout)

        layout = rng.choice(("BSH", "SBH", "BNSD", "BSND"))
        tensors = [shaped(n, q, d, layout), shaped(heads, kv, d, layout), shaped(heads, kv, dv, layout)]
        out, maxima = shaped(n, q, dv, layout), f"{b},{n},{q},8"
        shapes, dtypes = [*tensors, *([out] if backward else [])], ["BF16"] * (4 if backward else 3)
        if hides != "nothing":
            shapes, dtypes = [*shapes, "2048,2048" if hides == "causal" else f"{q},{kv}"], [*dtypes, "BOOL"]
        if backward:
            told = [maxima, maxima] if stats else []
            shapes, dtypes = [*shapes, *told, out], [*dtypes, *["FLOAT32"] * len(told), "BF16"]
            found = cost("FlashAttentionScoreGrad", ";".join(shapes), ";".join(dtypes), ";".join(tensors), "BF16")
        else:
            outs = f"{maxima};{maxima};;{out}" if stats else None
            found = cost("FlashAttentionScore", ";".join(shapes), ";".join(dtypes), outs, "FLOAT32;FLOAT32;BF16;BF16")
        low, high = flop(found)
        assert low <= truth <= high, (layout, shapes, hides, found)
        if stats and (hides == "nothing" or (hides == "causal" and q == kv)):
            exact += low == high
            assert low == high, (layout, shapes, found)
    assert exact > 50 or not stats


def test_values_and_rotated_parts_have_sizes_of_their_own() -> None:
    """D 192 of query and key, 128 of values; or 128 and 64 apart. 2 heads, 1000 × 1000 pairs.

    Forward 2 · (192 + 128), backward 2 · (3 · 192 + 2 · 128) per pair.
    """
    stats, types = "1,2,1000,8;1,2,1000,8", "FLOAT32;FLOAT32;BF16;BF16"
    together = cost(
        "FlashAttentionScore", "1,2,1000,192;1,2,1000,192;1,2,1000,128", "BF16", f"{stats};;1,2,1000,128", types
    )
    apart = cost("FlashAttentionScore", "1,2,1000,128;1,2,1000,128;1,2,1000,128;;1,2,1000,64;1,2,1000,64", "BF16",
                 f"{stats};;1,2,1000,128", types)  # fmt: skip
    assert flop(together) == flop(apart) == (1_280_000_000, 1_280_000_000)
    back = "1,2,1000,192;1,2,1000,192;1,2,1000,128;1,2,1000,128;" + stats + ";;1,2,1000,128"
    found = cost("FlashAttentionScoreGrad", back, "BF16;BF16;BF16;BF16;FLOAT32;FLOAT32;BF16;BF16",
                 "1,2,1000,192;1,2,1000,192;1,2,1000,128", "BF16")  # fmt: skip
    assert flop(found) == (3_328_000_000, 3_328_000_000)
    apart = cost("FlashAttentionScoreGrad", "1,2,1000,128;1,2,1000,128;1,2,1000,128;1,2,1000,128;" + stats
                 + ";;1,2,1000,128;1,2,1000,64;1,2,1000,64", "BF16;BF16;BF16;BF16;FLOAT32;FLOAT32;BF16;BF16;BF16;BF16",
                 "1,2,1000,128;1,2,1000,128;1,2,1000,128", "BF16")  # fmt: skip
    assert flop(apart) == (3_328_000_000, 3_328_000_000)


def test_attention_of_inference() -> None:
    """One token against 4096 keys, 32 heads of 128: 4 · 32 · 4096 · 128 = 67 108 864 a sequence."""
    decode = cost("IncreFlashAttention", "8,32,1,128;8,8,4096,128;8,8,4096,128", "FLOAT16", "8,32,1,128")
    assert decode is not None and (flop(decode), decode.note) == ((536_870_912, 536_870_912), "")
    lengths = cost("IncreFlashAttention", "8,32,1,128;8,8,4096,128;8,8,4096,128;8", "FLOAT16;FLOAT16;FLOAT16;INT64",
                   "8,32,1,128", "FLOAT16")  # fmt: skip
    assert lengths is not None and (flop(lengths), lengths.note) == ((0, 536_870_912), "lengths")
    int8 = cost("PromptFlashAttention", "1,1024,4096;1,1024,4096;1,1024,4096", "INT8", "1,1024,4096", "FLOAT16")
    assert int8 is not None and (int8.most, int8.rate) == (17_179_869_184, 16384)
    # 16 × 16: heads or tokens? as one 4 · 16 · 16 · 16 · 64, as the other the same; with 8 keys not
    open_ = cost("PromptFlashAttention", "1,16,32,64;1,8,8,64;1,8,8,64", "BF16", "1,16,32,64")
    assert open_ is not None and (flop(open_), open_.note) == ((1_048_576, 1_048_576), "layout")
    prompt = cost("PromptFlashAttention", "1,32,4096,128;1,32,4096,128;1,32,4096,128", "BF16", "1,32,4096,128")
    assert flop(prompt) == (274_877_906_944,) * 2  # 4096 is no number of heads: 4 · 32 · 4096 · 4096 · 128
    masked = cost(
        "PromptFlashAttention", "1,16,32,64;1,8,32,64;1,8,32,64;;1,1,32,32", "BF16;BF16;BF16;BF16;BOOL", "1,16,32,64"
    )
    assert flop(masked) == (4 * 16 * 64 * 528, 4 * 16 * 64 * 1024)  # the mask tells what is a length


def test_paged_keys_have_room_for_so_many() -> None:
    """8 sequences of at most 32 blocks of 128 keys: 4 · 8 · 32 · 4096 · 128 at most; MLA: 2 · (512 + 64 + 512)."""
    for pages in ("900,128,1024", "900,8,128,128", "900,8,8,128,16"):
        found = cost(
            "FusedInferAttentionScore", f"8,32,1,128;{pages};{pages};8,32", "BF16;BF16;BF16;INT32", "8,32,1,128", "BF16"
        )
        assert found is not None and (flop(found), found.note) == ((0, 536_870_912), "lengths"), pages
        assert found.bytes == (132_096, 132_096 + 2 * 2 * 900 * 128 * 1024)
    mla = cost("FusedInferAttentionScore", "8,128,1,512;900,1,128,512;900,1,128,512;8,32;8,128,1,64;900,1,128,64",
               "BF16;BF16;BF16;INT32;BF16;BF16", "8,128,1,512", "BF16")  # fmt: skip
    assert flop(mla) == (0, 8 * 128 * 4096 * 2 * 1088)
    fractal = "8,128,1,512;900,1,32,128,16;900,1,32,128,16;8,32;8,128,1,64;900,1,4,128,16"
    blocks = cost("FusedInferAttentionScore", fractal,
                  "BF16;BF16;BF16;INT32;BF16;BF16", "8,128,1,512", "BF16")  # fmt: skip
    assert flop(blocks) == (0, 8 * 128 * 4096 * 2 * 1088)
    mixed = cost("FusedInferAttentionScore", "8,128,1,512;8,1,128,512;8,1,128,512;8,128,1,64;8,1,128,64",
                 "INT8;INT8;INT8;BF16;BF16", "8,128,1,512", "BF16")  # fmt: skip
    assert mixed is not None and mixed.rate == 0  # two types in one product


# -- Vector cores: operations per element, bytes.

# type, input shapes and types, output shapes and types, operations, bytes
_VECTOR = [
    ("Add", "4,8;8", "FLOAT32;BF16", "4,8", "FLOAT32", 32, 272),
    ("Cast", "100", "FLOAT32", "100", "BF16", 100, 600),
    ("RealDiv", "10;10", "FLOAT16", "10", "FLOAT16", 10, 60),
    ("SquaredDifference", "10;10", "FLOAT16", "10", "FLOAT16", 20, 60),
    ("Addcmul", "10;10;10", "FLOAT16", "10", "FLOAT16", 30, 80),
    ("ForeachAddList", "10;20;10;20", "FLOAT32", "10;20", "FLOAT32", 30, 360),
    ("ForeachAddcdivList", "10;10;10", "FLOAT32", "10", "FLOAT32", 30, 160),
    ("RmsNorm", "4,64;64", "BF16", "4,64;4,1", "BF16;FLOAT32", 1024, 1168),
    ("AddRmsNorm", "4,64;4,64;64", "BF16", "4,64;4,1;4,64", "BF16;FLOAT32;BF16", 1280, 2192),
    ("RmsNormGrad", "4,64;4,64;4,1;64", "BF16;BF16;FLOAT32;BF16", "4,64;64", "BF16;FLOAT32", 2304, 1936),
    ("LayerNormV3", "4,64;64;64", "FLOAT16", "4,64;4,1;4,1", "FLOAT16", 1792, 1296),
    ("AddLayerNorm", "4,64;4,64;64;64", "FLOAT16", "4,64", "FLOAT16", 2048, 1792),
    ("LayerNormGrad", "4,64;4,64;4,1;4,1;64", "FLOAT16", "4,64;64;64", "FLOAT16", 3072, 1936),
    ("SoftmaxV2", "4,64", "FLOAT32", "4,64", "FLOAT32", 1280, 2048),
    ("LogSoftmaxGrad", "4,64;4,64", "FLOAT32", "4,64", "FLOAT32", 1024, 3072),
    ("ScaledMaskedSoftmax", "4,64;4,64", "FLOAT16;BOOL", "4,64", "FLOAT16", 1792, 1280),
    ("ScaledMaskedSoftmaxGrad", "4,64;4,64;4,64", "FLOAT16;FLOAT16;BOOL", "4,64", "FLOAT16", 1536, 1792),
    ("CrossEntropyLoss", "4,64;4", "FLOAT32;INT64", "4;4,64", "FLOAT32", 1280, 2096),
    ("CrossEntropyLossGrad", "4;4,64;4", "FLOAT32;FLOAT32;INT64", "4,64", "FLOAT32", 768, 2096),
    ("Relu", "10", "FLOAT32", "10", "FLOAT32", 10, 80),
    ("Sigmoid", "10", "FLOAT32", "10", "FLOAT32", 40, 80),
    ("TanhGrad", "10;10", "FLOAT32", "10", "FLOAT32", 30, 120),
    ("Swish", "10", "FLOAT32", "10", "FLOAT32", 50, 80),
    ("SiluGrad", "10;10", "FLOAT32", "10", "FLOAT32", 90, 120),
    ("FastGelu", "10", "FLOAT16", "10", "FLOAT16", 60, 40),
    ("FastGeluGrad", "10;10", "FLOAT16", "10", "FLOAT16", 100, 60),
    ("GeluGrad", "10;10;10", "FLOAT16", "10", "FLOAT16", 180, 80),
    ("ForeachCopy", "10;20", "FLOAT32", "10;20", "FLOAT32", 0, 240),
    ("GeluV2", "10", "FLOAT16", "10", "FLOAT16", 90, 40),
    ("SwiGlu", "4,64", "BF16", "4,32", "BF16", 768, 768),
    ("SwiGluGrad", "4,32;4,64", "BF16", "4,64", "BF16", 1408, 1280),
    ("DropOutDoMask", "64;8", "FLOAT16;UINT8", "64", "FLOAT16", 128, 264),
    ("ReduceSumD", "4,64", "FLOAT32", "4", "FLOAT32", 256, 1040),
    ("ArgMaxWithValue", "4,64", "FLOAT32", "4;4", "INT32;FLOAT32", 256, 1056),
    ("LpNormV2", "100", "FLOAT32", "1", "FLOAT32", 200, 404),
    ("ReduceStdV2", "100", "FLOAT32", "1", "FLOAT32", 400, 404),
    ("ApplyAdamWV2", "100;100;100;100;1", "FLOAT32;FLOAT32;FLOAT32;FLOAT32;INT64", None, "", 1500, 2808),
    ("ApplyMomentum", "100;100;1;100;1", "FLOAT32", None, "", 400, 2008),
    ("RotaryPositionEmbedding", "8,1,4,16;8,1,1,16;8,1,1,16", "BF16", "8,1,4,16", "BF16", 1536, 2560),
    ("RotaryPositionEmbeddingGrad", "8,1,4,16;8,1,1,16;8,1,1,16", "BF16", "8,1,4,16", "BF16", 1536, 2560),
    ("ApplyRotaryPosEmb", "8,1,4,16;8,1,2,16;8,1,1,16;8,1,1,16", "BF16", "8,1,4,16;8,1,2,16", "BF16", 2304, 3584),
    ("MoeGatingTopKSoftmax", "4,64", "FLOAT32", "4,8;4,8;4,8", "FLOAT32;INT32;INT32", 1280, 1408),
    ("MoeTokenUnpermute", "32,64;32;4,8", "BF16;INT32;BF16", "4,64", "BF16", 4096, 4800),
    ("MoeTokenPermute", "4,64;4,8", "BF16;INT32", "32,64;32", "BF16;INT32", None, 4864),
    ("TransData", "32,64", "FLOAT16", "4,2,16,16", "FLOAT16", 0, 8192),
    ("Transpose", "4,64;2", "FLOAT32;INT64", "64,4", "FLOAT32", 0, 2064),
    ("ConcatD", "4,64;4,64", "BF16", "8,64", "BF16", 0, 2048),
    ("TensorMove", "100", "FLOAT32", "100", "FLOAT32", 0, 800),
    ("Slice", "1000,64;2;2", "FLOAT32;INT64;INT64", "10,64", "FLOAT32", 0, 5120),
    ("ZerosLike", "100", "FLOAT32", "100", "FLOAT32", 0, 400),
    ("TopKV2", "32,1000;1", "FLOAT32;INT32", "32,5;32,5", "FLOAT32;INT32", None, 129_284),
]  # fmt: skip


@pytest.mark.parametrize("row", _VECTOR, ids=lambda row: row[0])
def test_operations_and_bytes_by_hand(row: tuple[str, str, str, str | None, str, int | None, int]) -> None:
    """Worked out by the definition of each operator: operations per element times elements; bytes once each."""
    type, shapes, dtypes, out, out_dtypes, operations, moved = row
    found = cost(type, shapes, dtypes, out, out_dtypes, core="AI_VECTOR_CORE")
    assert found is not None and flop(found) == (0, 0) and found.rate == 0
    assert found.vector == (None if operations is None else (operations, operations))
    assert found.bytes == (moved, moved)


def test_bytes_that_depend_on_data() -> None:
    """Rows of a table at 6 places: indices, what is written, and at most as much read; and what is not recorded."""
    gather = cost("GatherV2", "50,16;6;1", "FLOAT32;INT64;INT64", "6,16", "FLOAT32")
    assert gather is not None and gather.bytes == (56 + 384, 56 + 768)
    put = cost("IndexPutV2", "50,16;6,16;6", "FLOAT32;FLOAT32;INT64", "50,16", "FLOAT32")
    assert put is not None and put.bytes == (432, 864 + 6400)
    gradient = cost("EmbeddingDenseGradV2", "6,16;6;6", "FLOAT32;INT32;INT32", "50,16", "FLOAT32")
    assert gradient is not None and (gradient.vector, gradient.bytes) == ((96, 96), (432, 432 + 3200))
    spread = cost("AsStrided", "16;2;2;", "FLOAT32;INT64;INT64;INT64", "50,16", "FLOAT32")
    assert spread is not None and spread.bytes == (3200, 6400)  # 50 times the same row, or 50 rows of a larger tensor
    view = cost("ViewCopy", "50,16;2;2;1;6,16;2;2;1", "FLOAT32;INT64;INT64;INT64;FLOAT32;INT64;INT64;INT64", "50,16")
    assert view is not None and view.bytes == (0, 2 * 3200 + 384 + 10 * 8)
    routed = cost("MoeDistributeDispatch", "4,64;4,8", "BF16;INT32", "512,64", "BF16")
    assert routed is not None and routed.bytes == (0, 512 + 128 + 65536)  # a buffer for the most there can be
    scalar = cost("Mul", "100;", "FLOAT32", "100", "FLOAT32")
    assert scalar is not None and scalar.bytes == (800, 804)  # a number, or an input that was not given
    unknown = cost("Mul", "100;100", "", "100", "")
    assert unknown is not None and (unknown.bytes, unknown.vector) == (None, (100, 100))
    more = cost("RotaryPositionEmbeddingGrad", "8,16;8,16;8,16;8,16", "BF16", "8,16;8,16;8,16", "BF16")
    assert more is not None and more.vector == (384, 896)


# -- What cannot be told.


def test_every_kind_is_held_by_hand() -> None:
    """No row of the table without a case above."""
    here = Path(__file__).read_text(encoding="utf-8")
    types = [type for kind in KINDS for type in kind.types]
    assert len(types) == len(set(types))
    for kind in KINDS:
        assert kind.source and any(f'"{type}' in here for type in kind.types), kind.name


def test_products_and_attention_are_of_cube_cores_and_no_other_kind_is() -> None:
    """On vector cores alone they have no cost: what bears their name there is another operator."""
    for kind in KINDS:
        where = kind.cost.__module__.rpartition(".")[2]
        assert kind.cube == (where in ("attention_formulas", "cube_formulas")), kind.name
    assert cost("FlashAttentionScore", _FA, _FA_TYPES, _FA_OUT, _FA_OUT_TYPES, core="AI_VECTOR_CORE") is None


@pytest.mark.parametrize(
    "text", ["N/A", "-1,1024;1024,16", "4,x", "1.5,2", "4,,2", "9" * 30, "1" * 15 + ",1000000", "٣,4", "\x00", "4;N/A"]
)
def test_no_shapes(text: str) -> None:
    """Sizes that no tensor has, or none at all."""
    assert shapes_of(text) is None


def test_shapes_as_exports_write_them() -> None:
    """In quotes or not; nothing is a number."""
    assert shapes_of('"4096,1,8;8;;"') == ((4096, 1, 8), (8,), (), ())
    assert shapes_of(" 4, 8 ;8") == ((4, 8), (8,))
    assert shapes_of('""') == ((),)
    assert shapes_of(None) is None


def test_hostile_operands() -> None:
    """Empty, of another count, huge, negative: no cost and no error; what is recorded as missing is not known."""
    assert cost_of("MatMul", None, (), Operands((), (), (), ())) is None
    assert cost_of("MatMul", None, ((4, 8), (8, 2)), Operands(("BF16",), (), (), ())) is None
    assert cost_of("MatMul", None, ((4, 8), (8, 2)), Operands(("BF16",) * 3, (), (), ())) is None
    assert cost_of("MatMul", None, ((-1, 8), (8, 2)), Operands((), (), (), ())) is None
    assert cost_of("MatMul", None, ((2**60, 8), (8, 2)), Operands((), (), (), ())) is None
    assert cost_of("MatMul", None, ((4, 0), (0, 2)), Operands((), (), (), ())) is None
    assert cost_of("MatMul", "AI_CPU", ((4, 8), (8, 2)), Operands((), (), (), ())) is None
    assert cost_of("", None, ((4, 8), (8, 2)), Operands((), (), (), ())) is None
    assert cost_of("hcom_allReduce_", "COMMUNICATION", ((4, 8),), Operands((), (), (), ())) is None
    assert cost("MatMul", "4,8;8,2", "BF16", "4,x") is None
    assert cost("MatMul", "4,8;8,2", "BF16", "4,2;N/A") is None
    assert cost_of("MatMul", None, ((4, 8), (8, 2)), Operands(out_shapes=("4,2", "N/A"))) is None
    assert flop(cost("MatMul", "4,8;8,2", "BF16", "N/A")) == (128, 128)  # 8 fits only 8


def test_nothing_a_file_says_ends_in_an_error() -> None:
    """Every type with anything: [least, most] in order and finite, or no cost."""
    rng = random.Random(5)
    sizes = (0, 1, 2, 3, 8, 16, 128, 512, 2048, 3072, 4096, 1 << 20)
    dtypes = ("BF16", "FLOAT16", "FLOAT32", "INT8", "BOOL", "INT32", "INT64", "UINT8", "UNDEFINED", "")
    formats = ("ND", "FRACTAL_NZ", "NCHW", "NC1HWC0", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D", "NULL", "")
    types = [type for kind in KINDS for type in kind.types]
    for _ in range(20_000):
        pool = rng.choices(sizes, k=3)
        shapes = tuple(
            tuple(rng.choices(pool, k=rng.choice((0, 1, 2, 2, 3, 4, 4, 5, 6)))) for _ in range(rng.randint(0, 9))
        )
        outs = rng.choices((*shapes, (8,), ()), k=rng.randint(0, 4))
        operands = Operands(
            dtypes=tuple(rng.choices(dtypes, k=len(shapes))), formats=tuple(rng.choices(formats, k=len(shapes))),
            out_dtypes=tuple(rng.choices(dtypes, k=len(outs))), out_formats=tuple(rng.choices(formats, k=len(outs))),
            out_shapes=tuple(",".join(map(str, out)) for out in outs), hf32=rng.choice((None, True, False)),
        )  # fmt: skip
        type = rng.choice(types)
        found = cost_of(type, rng.choice((None, "AI_CORE", "MIX_AIC")), shapes, operands)
        if found is not None:
            assert 0 <= found.least <= found.most < math.inf, (type, shapes, operands)
            assert found.vector is None or 0 <= found.vector[0] <= found.vector[1] < math.inf
            assert found.bytes is None or 0 <= found.bytes[0] <= found.bytes[1]


# -- Real recordings: whatever a formula says is less than what the cubes were busy with.

# file, cube cores × MHz (worked out from cycles and time by hand), share of cube-busy work that has a formula
_REAL = [
    ("msinsight/cluster4/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", 20 * 1650, 1.0),
    ("msinsight/cluster4/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", 20 * 1650, 1.0),
    ("msinsight/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", 24 * 1800, 1.0),
    ("msinsight/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", 24 * 1800, 1.0),
    ("msprof-analyze/arithmetic_utilization/kernel_details.csv", 24 * 1850, 1.0),
    ("msprof-analyze/pipe_utilization/kernel_details.csv", 20 * 1800, 0.35),
    ("op_summary_2026/op_summary_pipe_utilization.csv", 20 * 1650, 0.0),
]


def _rows(path: str) -> list[dict[str, str]]:
    if not (DATA / path).exists():
        pytest.skip("the recording is not here")
    with (DATA / path).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def _cells(text: str | None) -> list[str]:
    return [] if text in (None, "", "N/A") else text.replace('"', "").split(";")


def _dtype(text: str) -> str:
    return {"FLOAT": "FLOAT32", "DOUBLE": "FLOAT64"}.get(name := text.strip().removeprefix("DT_"), name)


def _cost_of_row(row: dict[str, str]) -> Cost | None:
    """Ask for a raw row's cost, without any reader of npuperf."""
    into, out = ([f.removeprefix("FORMAT_").partition(":")[0] for f in _cells(row[f"{side} Formats"])]
                 for side in ("Input", "Output"))  # fmt: skip
    hf32 = {"YES": True, "NO": False}.get(row.get("HF32 Eligible", ""))
    operands = Operands(
        dtypes=tuple(map(_dtype, _cells(row["Input Data Types"]))), formats=tuple(into),
        out_dtypes=tuple(map(_dtype, _cells(row["Output Data Types"]))), out_formats=tuple(out),
        out_shapes=tuple(_cells(row["Output Shapes"])), hf32=hf32,
    )  # fmt: skip
    type, core = row.get("Type") or row["OP Type"], row.get("Accelerator Core") or row["Task Type"]
    return cost_of(type, core, shapes_of(row["Input Shapes"]) or (), operands)


def _busy(row: dict[str, str]) -> tuple[float, float] | None:
    """Return cycles × mac ratio × 8192, and what it is at most, the ratio having three decimals."""
    ratios = [row[c] for c in ("aic_mac_ratio", "aic_mac_fp16_ratio", "aic_mac_int8_ratio") if c in row]
    try:
        cycles, mac = float(row["aic_total_cycles"]), sum(map(float, ratios))
    except ValueError:
        return None
    return cycles * mac * 8192, cycles * (mac + 0.0005 * len(ratios)) * 8192


@pytest.mark.parametrize(("path", "core_mhz", "share"), _REAL, ids=lambda value: str(value).split("/")[-3:][0])
def test_no_real_kernel_did_less_than_it_was_asked(path: str, core_mhz: int, share: float) -> None:
    """Useful ≤ cube-busy ≤ peak × duration on every row that has counters; and how much of it has a formula."""
    all_, told = 0.0, 0.0
    for row in _rows(path):
        busy, found = _busy(row), _cost_of_row(row)
        if busy is None:
            continue
        duration = float(row.get("Duration(us)") or row["Task Duration(us)"])
        assert busy[0] <= core_mhz * 8192 * (duration + 0.001) * 1.001, row
        all_ += busy[0]
        if found and found.rate:
            assert found.least * 8192 / found.rate <= busy[1], row
            told += busy[0]
        elif found:
            assert found.most == 0 == busy[0], row
    assert all_ > 0 and told / all_ == pytest.approx(share, abs=0.01)


def test_edited_shapes_are_refused_or_break_the_bound() -> None:
    """pipe_utilization: 13 products with one size too many; read as 2·M·N·K of the first they are above the peak."""
    refused: dict[str, int] = defaultdict(int)
    for row in _rows("msprof-analyze/pipe_utilization/kernel_details.csv"):
        busy = _busy(row)
        if busy and _cost_of_row(row) is None:
            refused[row["Type"]] += 1
            assert has_formula(row["Type"])
            rows, columns = row["Input Shapes"].strip('"').split(";")[0].split(",")[:2]
            if rows == "81920":
                assert 2 * int(rows) * int(columns) * int(row["Output Shapes"].strip('"').split(",")[1]) > 5 * busy[1]
    assert refused == {"MatMulV3": 8, "MatMulV2": 4, "FlashAttentionScore": 1}
