"""What a kernel is asked to do, by its type and its operands: a table of kinds, each with its formula and its source.

Nothing is guessed: of a type that is not here, of shapes that do not fit each other or that a file does not have, there
is no cost. What shapes leave open becomes [least, most]. Held in tests against the counters of every real recording.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct, structs

from npuperf.device import attention_formulas as attention
from npuperf.device import cube_formulas as cube
from npuperf.device.cube_formulas import Call, Cost, Shape, Tensor, sane, total
from npuperf.model.labels import Operands

__all__ = ("KINDS", "Cost", "Shape", "cost_of", "has_formula", "shapes_of")

#: Cores that do not multiply matrices.
_NO_CUBE: Final = ("AI_VECTOR_CORE", "AI_CPU", "DSA_SQE")


class Formula(Struct, frozen=True):
    """Types of operators with one formula, and where it is from. ``cube``: its FLOP are products of matrices."""

    name: str
    cost: Callable[[Call], Cost | None]
    source: str
    types: tuple[str, ...]
    cube: bool = False


_SIZES: Final = re.compile(r"[0-9,;\s]*")


def shapes_of(text: str | None) -> tuple[Shape, ...] | None:
    """Read ``4096,1024;1024``, in quotes or not; None where it is not that: ``N/A``, a size below 0, no tensor's size.

    Nothing between two separators is a number, or an input that was not given.
    """
    plain = text.replace('"', "") if text is not None else "N/A"
    if not _SIZES.fullmatch(plain):
        return None
    try:
        shapes = tuple(tuple(map(int, cell.split(","))) if cell.strip() else () for cell in plain.split(";"))
    except ValueError:  # nothing between two commas, two numbers, or one that fills a book
        return None
    return shapes if all(map(sane, shapes)) else None


def has_formula(type: str) -> bool:
    """Tell a type that has a formula: where it has no cost none the less, shapes are missing or do not fit it."""
    return _plain(type) in _KIND_OF


def cost_of(type: str, core: str | None, shapes: tuple[Shape, ...], operands: Operands) -> Cost | None:
    """Return what a kernel is asked to do; None where there is no formula, or shapes and types do not fit it.

    ``shapes``: of the inputs (:func:`shapes_of`). Never raises for what a file can say.
    """
    kind = _KIND_OF.get(_plain(type))
    if kind is None or (kind.cube and core in _NO_CUBE) or not all(map(sane, shapes)):
        return None
    told = [text for text in operands.out_shapes if text.upper() not in ("N/A", "NULL")]
    outs = shapes_of(";".join(told)) if told else None
    if told and (outs is None or len(told) < len(operands.out_shapes)):
        return None
    inputs = _tensors(shapes, operands.dtypes, operands.formats)
    outputs = _tensors(outs, operands.out_dtypes, operands.out_formats) if outs is not None else None
    if inputs is None or (outs is not None and outputs is None):
        return None
    cost = kind.cost(Call(inputs, outputs, operands.hf32))
    if cost is None or cost.dims is None:
        return cost
    inner = tuple(size for tensor in inputs[:2] if (size := tensor.unaligned) is not None)
    return structs.replace(cost, inner=inner) if inner else cost


def _tensors(shapes: tuple[Shape, ...], dtypes: tuple[str, ...], formats: tuple[str, ...]) -> tuple[Tensor, ...] | None:
    """Put columns together; not recorded are they empty, and of another length they contradict each other."""
    count = len(shapes)
    if len(dtypes) not in (0, count) or len(formats) not in (0, count):
        return None
    return tuple(map(Tensor, shapes, dtypes or ("",) * count, formats or ("",) * count))


# -- Kinds of vector cores: operations per element by the definition of the operator.


def _vector(call: Call, low: float, high: float, traffic: tuple[int, int] | None) -> Cost:
    return Cost(0.0, 0.0, 0, (low, high), traffic)


def _per_output(operations: int) -> Callable[[Call], Cost | None]:
    """Return a formula with so many operations per element of the outputs that have the first one's shape's size."""

    def formula(call: Call) -> Cost | None:
        if not call.out:
            return None
        count = float(operations * call.out.elements)
        return _vector(call, count, count, call.traffic())

    return formula


def _per_input(operations: int, place: int = 0) -> Callable[[Call], Cost | None]:
    """Return a formula with so many operations per element of one input."""

    def formula(call: Call) -> Cost | None:
        if len(call.ins) <= place:
            return None
        count = float(operations * call.ins[place].elements)
        return _vector(call, count, count, call.traffic())

    return formula


def _lists(operations: int) -> Callable[[Call], Cost | None]:
    """Return a formula of operators on lists of tensors, with so many operations per element of the output."""

    def formula(call: Call) -> Cost | None:
        if not call.outs:
            return None
        count = float(operations * sum(t.elements for t in call.outs if t.given))
        return _vector(call, count, count, call.traffic())

    return formula


def _in_place(operations: int, changed: int) -> Callable[[Call], Cost | None]:
    """Return a formula of optimizers: so many operations per parameter, and the first inputs are written again.

    Exports name outputs of some and not of others.
    """

    def formula(call: Call) -> Cost | None:
        if len(call.ins) < changed or len({t.shape for t in call.ins[:changed]}) != 1:
            return None
        count = float(operations * call.ins[0].elements)
        return _vector(call, count, count, total(t.bytes() for t in (*call.ins, *call.ins[:changed])))

    return formula


def _all_read(call: Call) -> Cost | None:
    """Everything is read and written once, nothing is computed."""
    return _vector(call, 0.0, 0.0, call.traffic())


def _part_read(call: Call) -> Cost | None:
    """As much is read as is written; what else of the input there is stays untouched."""
    if not call.outs:
        return None
    written = total(t.bytes() for t in call.outs)
    return _vector(call, 0.0, 0.0, (2 * written[0], 2 * written[1]) if written else None)


def _any_part_read(call: Call) -> Cost | None:
    """As much is written as the output has; the same elements may be read again and again, or be only a few."""
    if not call.outs:
        return None
    written = total(t.bytes() for t in call.outs)
    return _vector(call, 0.0, 0.0, (written[0], 2 * written[1]) if written else None)


def _any_part_written(call: Call) -> Cost | None:
    """Inputs are read; how much of the outputs is written depends on data, or on attributes."""
    if not call.ins:
        return None
    known, whole = total(t.bytes() for t in call.ins), call.traffic()
    count = float(call.ins[0].elements)
    return _vector(call, count, count, (known[0], whole[1]) if known and whole else None)


def _view_copied(call: Call) -> Cost | None:
    """A part of the first input, which is not told, is read and written: or all of it."""
    known = call.traffic()
    return _vector(call, 0.0, 0.0, (0, known[1]) if known else None)


def _only_written(call: Call) -> Cost | None:
    """The values do not depend on the input, of which the shape is enough."""
    return _vector(call, 0.0, 0.0, total(t.bytes() for t in call.outs) if call.outs else None)


def _gather(call: Call) -> Cost | None:
    """Rows of a table at indices: these are read, the output written; a row that comes again may be read once."""
    if not call.outs or len(call.ins) < 2:
        return None
    written, index = total(t.bytes() for t in call.outs), total(t.bytes() for t in call.ins[1:])
    both = (written[0] + index[0], 2 * written[1] + index[1]) if written and index else None
    return _vector(call, 0.0, 0.0, both)


def _scatter(call: Call) -> Cost | None:
    """Values go to places of a tensor that stays as it is beside them; or all of it is written anew."""
    if len(call.ins) < 3:
        return None
    rest, whole = total(t.bytes() for t in call.ins[1:]), call.ins[0].bytes()
    return _vector(call, 0.0, 0.0, (rest[0], 2 * rest[1] + 2 * whole[1]) if rest and whole else None)


def _bytes_only(call: Call) -> Cost | None:
    """How much is computed depends on data or on attributes."""
    known = call.traffic()
    return Cost(0.0, 0.0, 0, None, known) if known else None


def _routed(call: Call) -> Cost | None:
    """Rows that go to other devices and come from them; buffers hold the most there can be."""
    known = call.traffic()
    return Cost(0.0, 0.0, 0, None, (0, known[1])) if known else None


def _rope_gradient(call: Call) -> Cost | None:
    """The rotation back; the gradients of cos and sin, where they are asked for, are two products and two sums more."""
    if not call.out or not call.outs:
        return None
    more = any(t.given for t in call.outs[1:])
    count = float(call.out.elements)
    return _vector(call, 3 * count, (7 if more else 3) * count, call.traffic())


# -- The table.


def _kind(name: str, formula: Callable[[Call], Cost | None], source: str, types: str, cube: bool = False) -> Formula:
    return Formula(name, formula, source, tuple(types.split()), cube)


_TORCH: Final = "torch, the function of that name"
_ACLNN: Final = "CANN, aclnn operator interfaces"
_ABOVE: Final = "derivative of the above"

#: Versions (V2, …) and forms for static shapes (D) are not named.
KINDS: Final = (
    # -- Cube cores.
    _kind("matmul", cube.matmul, "BLAS, gemm: 2·M·N·K",
          "MatMul BatchMatMul MatMulCommon BatchMatmulFixpipe MatmulAllReduce MatmulAllReduceAddRmsNorm Mc2MatMul Gemm "
          "FusedMatMul", True),
    _kind("quantised matmul", cube.quantised_matmul, "BLAS, gemm; aclnnQuantMatmulV4, aclnnWeightQuantBatchMatmulV2",
          "QuantBatchMatmul Mc2QuantBatchMatmul QuantMatmul WeightQuantBatchMatmul", True),
    _kind("matmul, gathered or scattered", cube.gathered_matmul, "aclnnAllGatherMatmul, aclnnMatmulReduceScatter",
          "AllGatherMatmul MatmulReduceScatter", True),
    _kind("grouped matmul", cube.grouped_matmul, "aclnnGroupedMatmulV4",
          "GroupedMatmul GroupedMatmulAdd QuantGroupedMatmul", True),
    _kind("grouped matmul, SwiGLU", cube.grouped_swiglu, "aclnnGroupedMatmulSwigluQuant",
          "GroupedMatmulSwigluQuant", True),
    _kind("grouped matmul, routing", cube.grouped_routing, "aclnnGroupedMatmulFinalizeRouting",
          "GroupedMatmulFinalizeRouting", True),
    _kind("feed forward", cube.feed_forward, "aclnnFFN: both products", "FFN", True),
    _kind("MLA prolog", cube.mla_prolog, "aclnnMlaProlog", "MlaProlog", True),
    _kind("convolution", cube.convolution, "torch.nn.functional.conv2d", "Conv2D Conv3D DepthwiseConv2D", True),
    _kind("convolution, gradient of the input", cube.convolution_input, "torch.nn.grad.conv2d_input",
          "Conv2DBackpropInput Conv3DBackpropInput DepthwiseConv2DBackpropInput", True),
    _kind("convolution, gradient of the filter", cube.convolution_filter, "torch.nn.grad.conv2d_weight",
          "Conv2DBackpropFilter Conv3DBackpropFilter DepthwiseConv2DBackpropFilter", True),
    _kind("convolution, transposed", cube.convolution_transposed, "torch.nn.functional.conv_transpose2d",
          "Conv2DTranspose Conv3DTranspose", True),
    _kind("attention", attention.attention, "FlashAttention-2; aclnnFlashAttentionScore", "FlashAttentionScore", True),
    _kind("attention, gradient", attention.attention_backward, "FlashAttention-2; aclnnFlashAttentionScoreGrad",
          "FlashAttentionScoreGrad FlashAttentionUnpaddingScoreGrad", True),
    _kind("attention, inference", attention.inference_attention, "aclnnFusedInferAttentionScore",
          "PromptFlashAttention IncreFlashAttention FusedInferAttentionScore", True),
    # -- Vector cores: norms, softmax, losses.
    _kind("RMS norm", _per_input(4), "Zhang and Sennrich, RMSNorm: square, sum, · 1/rms, · weight", "RmsNorm"),
    _kind("RMS norm of a sum", _per_input(5), "one addition before", "AddRmsNorm InplaceAddRmsNorm AddRmsNormCast"),
    _kind("RMS norm, gradient", _per_input(9), _ABOVE + ": 5 products, 2 sums, difference, · 1/rms", "RmsNormGrad"),
    _kind("layer norm", _per_input(7), "torch: sum, difference, square, sum, · 1/σ, · weight, + bias",
          "LayerNorm LayerNormWithImplMode GroupNorm InstanceNorm"),
    _kind("layer norm of a sum", _per_input(8), "one addition before", "AddLayerNorm"),
    _kind("layer norm, gradient", _per_input(12), _ABOVE + ": six products, four sums, two differences",
          "LayerNormGrad GroupNormGrad"),
    _kind("softmax", _per_input(5), "maximum, difference, exp, sum, quotient", "Softmax LogSoftmax"),
    _kind("softmax, gradient", _per_input(4), "product, sum, difference, product", "SoftmaxGrad LogSoftmaxGrad"),
    _kind("softmax, masked", _per_input(7), "scale and mask before", "ScaledMaskedSoftmax"),
    _kind("softmax, masked, gradient", _per_input(6), "mask and scale after", "ScaledMaskedSoftmaxGrad"),
    _kind("cross entropy", _per_input(5), "softmax; one element of a row is picked",
          "CrossEntropyLoss SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"),
    _kind("cross entropy, gradient", _per_input(3, 1), "exp, difference, · gradient", "CrossEntropyLossGrad"),
    # -- Activations.
    _kind("ReLU", _per_output(1), _TORCH, "Relu ReluGrad LeakyRelu LeakyReluGrad Relu6 Relu6Grad"),
    _kind("sigmoid", _per_output(4), "sign, exp, sum, quotient", "Sigmoid"),
    _kind("sigmoid and tanh, gradients", _per_output(3), "y, 1 − y or y², · gradient", "SigmoidGrad TanhGrad"),
    _kind("SiLU", _per_output(5), "x · sigmoid", "Silu Swish"),
    _kind("SiLU, gradient", _per_output(9), _ABOVE + ": s, 1 − s, · x, + 1, · s, · gradient", "SiluGrad SwishGrad"),
    _kind("GELU, fast", _per_output(6), "x · sigmoid(1.702 · x)", "FastGelu"),
    _kind("GELU, fast, gradient", _per_output(10), _ABOVE + ": 1.702 · x, s, 1 − s, · x, + 1, · s, · gradient",
          "FastGeluGrad"),
    _kind("GELU", _per_output(9), "torch, tanh form: x³, scale, + x, scale, tanh, + 1, · x, half", "Gelu"),
    _kind("GELU, gradient", _per_output(18), _ABOVE + ": tanh 6, half 2, slope 8, sum, · gradient",
          "GeluGrad"),
    _kind("SwiGLU", _per_output(6), "Shazeer, GLU Variants: SiLU, product", "SwiGlu"),
    _kind("SwiGLU, gradient", _per_input(11), _ABOVE + ": sigmoid, SiLU, of one half 1, of the other 5", "SwiGluGrad"),
    _kind("dropout", _per_output(2), "torch: mask, scale", "DropOutDoMask"),
    # -- Element by element.
    _kind("element by element", _per_output(1), _TORCH,
          "Add Adds BiasAdd Sub Mul Muls RealDiv Div DivNoNan FloorDiv FloorMod Mod Abs Neg Sign Square Sqrt Rsqrt "
          "Reciprocal Exp Expm1 Log Log1p Sin Cos Tan Tanh Erf Pow Pows Floor Ceil Round Trunc Maximum Minimum "
          "Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot LogicalXor "
          "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Select MaskedFill Cast IsFinite IsNan IsInf LpNormUpdate "
          "Tril Triu"),
    _kind("two element by element", _per_output(2), _TORCH, "Axpy SquaredDifference ClipByValue Clamp"),
    _kind("three element by element", _per_output(3), _TORCH, "Addcmul Addcdiv Lerp"),
    _kind("lists, one operation", _lists(1), "torch._foreach_…",
          "ForeachAddList ForeachAddScalar ForeachAddScalarList ForeachSubList ForeachSubScalar ForeachSubScalarList "
          "ForeachMulList ForeachMulScalar ForeachMulScalarList ForeachDivList ForeachDivScalar ForeachDivScalarList "
          "ForeachMaximumList ForeachMaximumScalar ForeachMinimumList ForeachMinimumScalar ForeachPowScalar ForeachAbs "
          "ForeachNeg ForeachSqrt ForeachExp ForeachLog ForeachReciprocal ForeachSign ForeachTanh"),
    _kind("lists, copied", _lists(0), "torch._foreach_…", "ForeachCopy ForeachZeroInplace"),
    _kind("lists, three operations", _lists(3), "torch._foreach_…",
          "ForeachAddcmulList ForeachAddcmulScalar ForeachAddcmulScalarList ForeachAddcdivList ForeachAddcdivScalar "
          "ForeachAddcdivScalarList ForeachLerpList ForeachLerpScalar"),
    # -- Reductions.
    _kind("reduction", _per_input(1), _TORCH,
          "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceAll ReduceAny ArgMax ArgMin ArgMaxWithValue "
          "ArgMinWithValue Cumsum Cumprod BiasAddGrad"),
    _kind("norm of a vector", _per_input(2), "square, sum", "LpNorm LpNormReduce SquareSum SquareSumAll L2Loss"),
    _kind("variance", _per_input(4), "sum, difference, square, sum", "ReduceStd ReduceVar ReduceStdWithMean"),
    # -- Optimizers.
    _kind("Adam", _in_place(15, 3), "Loshchilov and Hutter, AdamW: m 3, v 4, corrections 2, root, + ε, quotient, "
          "· rate, difference, decay", "ApplyAdam ApplyAdamW"),
    _kind("momentum", _in_place(4, 2), "torch.optim.SGD", "ApplyMomentum"),
    # -- RoPE.
    _kind("RoPE", _lists(3), "Su and others, RoFormer: x · cos + rotated x · sin",
          "RotaryPositionEmbedding ApplyRotaryPosEmb InterleaveRope RotaryMul"),
    _kind("RoPE, gradient", _rope_gradient, _ABOVE, "RotaryPositionEmbeddingGrad RotaryMulGrad"),
    # -- Tables.
    _kind("gather", _gather, _TORCH, "Gather GatherElements GatherNd Index IndexSelect"),
    _kind("embedding, gradient", _any_part_written, "torch: each element is added to its row; zeros are set before",
          "EmbeddingDenseGrad"),
    _kind("scatter", _scatter, _TORCH, "Scatter ScatterUpdate ScatterElements ScatterNd ScatterNdUpdate IndexPut"),
    # -- Mixtures of experts.
    _kind("MoE gating", _per_input(5), "softmax over experts; choosing is not counted", "MoeGatingTopKSoftmax"),
    _kind("MoE dispatch", _bytes_only, _ACLNN + ": rows are moved, no arithmetic is told",
          "MoeInitRouting MoeTokenPermute MoeTokenPermuteGrad MoeTokenUnpermuteGrad MoeGatingTopK MoeReRouting"),
    _kind("MoE dispatch, over devices", _routed, "aclnnMoeDistributeDispatch",
          "MoeDistributeDispatch MoeDistributeCombine"),
    _kind("MoE combine", _per_input(2), "aclnnMoeTokenUnpermute: rows of a token's experts, weighted and added",
          "MoeTokenUnpermute MoeFinalizeRouting"),
    # -- Bytes only.
    _kind("copy or layout", _all_read, _TORCH,
          "TransData Transpose TensorMove Identity Concat Pack Stack Split Unpack Pad Tile BroadcastTo Expand "
          "Roll Reverse Flip"),
    _kind("part of a tensor", _part_read, _TORCH, "Slice StridedSlice"),
    _kind("view of a tensor", _any_part_read, "torch.as_strided", "AsStrided"),
    _kind("copy into a view", _view_copied, "aclnnInplaceCopy", "ViewCopy"),
    _kind("constant", _only_written, _TORCH,
          "ZerosLike OnesLike Fill Range Eye DSAGenBitMask DSAStatelessGenBitMask DSARandomNormal DSARandomUniform"),
    _kind("pooling, sorting, scaling", _bytes_only, _ACLNN,
          "MaxPool MaxPoolWithArgmax MaxPoolGradWithArgmax AvgPool AvgPoolGrad AdaptiveAvgPool2d AdaptiveAvgPool3d "
          "AdaptiveAvgPool2dGrad AdaptiveAvgPool3dGrad Sort TopK NonZero BatchNorm BNTrainingReduce BNTrainingUpdate "
          "DynamicQuant AscendQuant DequantSwigluQuant"),
)  # fmt: skip

_VERSION: Final = re.compile(r"(D|V\d+)+$")


def _plain(type: str) -> str:
    """Return a type's name without its version."""
    return _VERSION.sub("", type)


_KIND_OF: Final = {_plain(type): kind for kind in KINDS for type in kind.types}
