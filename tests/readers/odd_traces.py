"""Traces made of odd parts: every value somewhere that nobody would write there, and spacing that nobody would use."""

from __future__ import annotations

from random import Random

#: Values as they stand in a file, that any field may have.
ANYTHING = (
    "null", "true", "false", "0", "-0", "-0.0", "1", "-1", "7", "1.0", "1.5", "1e3", "1E+2", "1e-2", "1e99", "1e100",
    "01", "1.", ".5", "+1", "-", "0x1", "NaN", "-Infinity", "nul", "True", "2147483647", "2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "9" * 25, "9" * 40,
    "0." + "3" * 40, '""', '"7"', '" 7"', '"007"', '"-7"', '"-0"', '"+7"', '"7_0"', '"7\\t"', '"1.5"', '"1e3"', '"x"',
    '"N/A"', '"nan"', '" N/A "', '"\\"quoted\\""', '" blank "', '"\\u0041"', '"\\u00e9\\n"', '"é"', '"中文"', '"😀"',
    '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u12"', '"\\x"', '"\\', '"\t"', '"\x00"', '"\x7f"',
    '"\xa0 a"', '"a}, {b"', '"}, {\\"ph\\": \\"X\\"}, {"', '"]"', '"[{"', "{}", "[]", "[[]]", "[1, 2,]", '{"a" 1}',
    '{"a": 1,}', "[}", "[" * 70 + "]" * 70, '{"a": {"b": [1, {"c": null}]}}', '[{"a": 1}, {"b": 2}, {"c": 3}]',
    '[{"ts": 5}, {"dur": "x"}]',
)  # fmt: skip
_LARGE = '"40004631069296951295"'
#: Values that a field has in traces, the first three in most of them.
USUAL = {
    "ph": ('"X"', '"X"', '"X"', '"M"', '"s"', '"f"', '"C"', '"i"', '"\\u0058"', '""'),
    "ts": (
        '"1736413971558972.912"', '"1736413971558972.91"', '"1736413971558973"', '"5.0005"', '"5.0015"',
        '"5.0005000001"', '"0012.5"', '"9999999999999999.5"', '"99999999999999999"',
        '"4000000000000000"', '"3999999999999999.9999"', '"12."', '"-5"', '" 5"', '"5\\t"', '""',
        "1736413971558.972", "5", "5.25", "1.5e3", "17364139715589.7251",
    ),
    "dur": (
        "0", "0.0", "1.5", "13.08", "0.001", "0.0005", "0.0015", "0.00250000000001", "123456789012.345",
        "999999999999999", "9999999999999999", "0.1234567890123456", "1234567.12345678", "-3", "1e2", '"1.5"', "4e15",
    ),
    "name": (
        '"MatMul"', '"MEMCPY_ASYNC"', '"process_name"', '"AI Core Freq"', '"aten::a"', '"thread_name"',
        '"MEM\\u0043PY"', '"train.py(7): step"', '"process_labels"', '"process_sort_index"',
    ),
    "cat": (
        '"cpu_op"', '"async_npu"', '"python_function"', '"HostToDevice"', '"kernel"', '"fwdbwd"', '"async_\\u006epu"',
    ),
    "pid": ("1", "2", "3", '"Spans"', "123456789012"),
    "tid": ("1", "2", "140000000000000", '"7"'),
    "id": ("1", '"3"', _LARGE, _LARGE[1:-1], '"4294967296"', "340282366920938463463374607431768211456", '"x"'),
}  # fmt: skip
#: The same of arguments, the first one in most of them.
ARGUMENTS = {
    "connection_id": ("1", "2", '"7"'), "Task Type": ('"AI_CORE"', '"MIX_AIC"'), "Call stack": ('"a.py(1): f;\\n"',),
    "correlation": ("1", "2"), "External id": ("3",), "stream": ("7", '"7"'), "device": ("0",), "MHz": ("1650", '"8"'),
    "operation": ('"host to device"', "5"), "size(B)": ("1024", '"1024"', "[1]"), "name": ('"CANN"', '"Python"'),
    "labels": ('"NPU 0"', '"CPU"'), "sort_index": ("4", '"5"'), "Input Dims": ("[[1, 2], []]", '[{"a": 1}, {"b": 2}]'),
    "src rank": ("0", "1", '"0"'), "dst rank": ("1", "5", "4294967295"), "size(Byte)": ("0", "2064384", '"64"'),
    "count": ("4097000", '"8"'), "data_type": ('"FP32"', "4"), "": ("1",),
}  # fmt: skip
_BLANKS = ("", "", "", " ", " ", "\n", "\t", "\r\n  ", " " * 30)
_STRANGE_BLANKS = ("\f", "\v", "\x00", "\xa0", ",", "#")


def odd_trace(rng: Random) -> bytes:
    """Render a few events, most of whose values are usual; few traces have no oddity at all."""
    oddity, numeric = rng.choice((0.0, 0.0, 0.02, 0.05, 0.3)), rng.random() < 0.4
    made = [_event(rng, oddity, numeric) for _ in range(rng.randrange(1, 14))]
    text = made[0]
    for event in made[1:]:
        text += _blank(rng, oddity) + "," + _blank(rng, oddity) + event
    text = f"[{_blank(rng, oddity)}{text}{_blank(rng, oddity)}]"
    if rng.random() < 0.3:
        more = rng.choice(("", ', "other": [{"a": 1}, {"b": 2}]', ', "distributedInfo": {"rank": 3}'))
        text = f'{{"schemaVersion": 1, "traceEvents": {text}{more}}}'
    return text.encode("utf-8", "surrogatepass")


def mutated(rng: Random, data: bytes) -> bytes:
    """Change, cut or repeat a few bytes, so that what was strange is somewhere else."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, to = sorted(rng.randrange(len(changed) + 1) for _ in range(2))
        kind = rng.random()
        if kind < 0.3 and at < len(changed):
            changed[at] = rng.choice(b'"\\{}[],: 019.-eEnt\x00\x1f\x80\xc3\xff')
        elif kind < 0.5:
            del changed[at : min(to, at + 12)]
        elif kind < 0.7:
            changed[at:at] = rng.choice(ANYTHING).encode()
        elif kind < 0.9:
            changed[at:at] = changed[to : to + rng.randrange(1, 80)]
        else:
            del changed[max(at, 40) :]
    return bytes(changed)


def _event(rng: Random, oddity: float, numeric: bool) -> str:
    fields = [name for name in USUAL if rng.random() < 0.85]
    members = [_member(rng, name, _usual(rng, name, numeric), oddity) for name in fields]
    if rng.random() < 0.6:
        chosen = rng.sample(sorted(ARGUMENTS), rng.randrange(5))
        inner = [
            _member(rng, name, rng.choice(ARGUMENTS[name][: 1 if rng.random() < 0.9 else None]), oddity)
            for name in chosen
        ]
        members.append(_member(rng, "args", "{" + ", ".join(inner) + "}", oddity))
    if rng.random() < 0.1:
        members.append(_member(rng, "bp", rng.choice(ANYTHING[:10]), oddity))
    rng.shuffle(members)
    if members and rng.random() < oddity:
        members.append(rng.choice(members))
    return "{" + _blank(rng, oddity) + f"{_blank(rng, oddity)},{_blank(rng, oddity)}".join(members) + "}"


def _usual(rng: Random, name: str, numeric: bool) -> str:
    if name in ("ts", "dur") and rng.random() < 0.98:
        noisy = repr(rng.randrange(10 ** rng.randrange(1, 7)) * 0.0005 + rng.choice((0.0, 0.1, 0.2)) * 3)
        exact = f"{rng.random() * 1e5:.{rng.randrange(1, 8)}f}"
        return noisy if name == "dur" else exact if numeric else f'"{exact}"'
    return rng.choice(USUAL[name][: 3 if rng.random() < 0.7 else 6 if rng.random() < 0.97 else None])


def _member(rng: Random, name: str, value: str, oddity: float) -> str:
    value = rng.choice(ANYTHING) if rng.random() < oddity else value
    return f'"{name}"{_blank(rng, oddity)}:{_blank(rng, oddity)}{value}'


def _blank(rng: Random, oddity: float) -> str:
    return rng.choice(_STRANGE_BLANKS if rng.random() < oddity / 20 else _BLANKS)
