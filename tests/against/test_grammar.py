"""The grammar of gates: what can be said, that it reads the same when it is printed, and what is refused."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from npuperf.against.gates import Condition, check_baseline, parse_gate, spelled
from npuperf.against.metrics import register_all
from npuperf.base.errors import ExitCode, UsageError
from npuperf.model.document import metrics_of
from npuperf.model.result import Result
from npuperf.model.tuning import Tuning
from npuperf.tune import request

assert request
register_all()


def read(text: str) -> Condition:
    return parse_gate(text, Result)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("host_wait>20%", {"sign": ">", "limit": 20, "aggregate": None, "level": "fail", "of": None}),
        (" host_wait >= 20 ", {"sign": ">=", "limit": 20, "relative": False}),
        ("step_time>+5%,200us", {"limit": 5, "relative": True, "share": True, "floor": 200_000}),
        ("step_time<-3%", {"sign": "<", "limit": -3, "relative": True, "share": True}),
        ("step_time > +200 US", {"limit": 200_000, "relative": True, "share": False}),
        ("step_time>1.5ms", {"limit": 1_500_000, "relative": False}),
        ("step_time>+0", {"limit": 0, "relative": True, "share": False}),
        ("host_wait>+5%", {"limit": 5, "relative": True, "share": False}),  # points, not five percent of it
        ("count.launches>+0", {"limit": 0, "relative": True}),
        ("count.syncs==3", {"sign": "=", "limit": 3}),
        ("count.syncs!=3", {"sign": "!=", "limit": 3}),
        ("bytes.comm>1.5GiB", {"limit": 1.5 * 2**30}),
        ("bytes.comm>+1MB", {"limit": 10**6, "relative": True}),
        ("p95(step_time)>12ms", {"aggregate": "p95"}),
        ("EACH( count.syncs ) > 2", {"aggregate": "each", "limit": 2}),
        ("warn: idle>1%", {"level": "warn"}),
        ("fail:idle>1%", {"level": "fail"}),
        ("op:MatMulV2>+10%", {"argument": "MatMulV2", "share": True}),
        ("op: 'void f<a, b>(int)' > 1ms", {"argument": "void f<a, b>(int)"}),
        ("max(op:MatMulV2)>1ms", {"argument": "MatMulV2", "aggregate": "max"}),
        ("comm.wait[dp]>1%", {"argument": "dp"}),
        ('comm.wait["tp, 8 ranks"]>1%', {"argument": "tp, 8 ranks"}),
        ("verdict=host", {"word": "host", "sign": "="}),
        ("findings>=HIGH", {"word": "high", "sign": ">="}),
        ("findings>3", {"word": None, "limit": 3}),
        ("finding:ai_cpu", {"argument": "ai_cpu", "sign": ">", "limit": 0}),
        ("finding:ai_cpu>=medium", {"argument": "ai_cpu", "word": "medium"}),
        ("step_time>+5% for 2 of 3", {"times": 2, "of": 3}),
        ("step_time>5ms for 1 of 20", {"times": 1, "of": 20, "limit": 5_000_000}),
    ],
)
def test_what_can_be_said(text: str, told: dict[str, object]) -> None:
    condition = read(text)
    assert {name: getattr(condition, name) for name in told} == told
    assert condition.expr == text.strip()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "cannot be read"),
        ("idle", "no limit"),
        ("idle>", "cannot be read"),
        (">5", "cannot be read"),
        ("idle>>5", "cannot be read"),
        ("idle=>5", "is no number|cannot be read"),
        ("idle>5% 3", "cannot be read"),
        ("median(idle>5%", "cannot be read"),
        ("idle)>5%", "cannot be read"),
        ("p99(idle)>5%", "did you mean p95"),
        ("mdian(idle)>5%", "did you mean median"),
        ("median(findings)>3", "no value in each step"),
        ("step_tme>5ms", "did you mean step_time"),
        ("Op>5ms", "does not say of what"),
        ("op:>5ms", "cannot be read"),
        ('op:"">5ms', "does not say of what"),
        ("idle[dp]>5%", "nothing in particular"),
        ("finding:ai_cup", "did you mean ai_cpu"),
        ("step_time>5", "give ns, us, ms or s"),
        ("step_time>5min", "give ns, us, ms or s"),
        ("step_time>5%", "percentage of the baseline has a sign"),
        ("idle>5ms", "idle is a percentage"),
        ("count.syncs>5%", "count.syncs is a count"),
        ("count.syncs>5ms", "count.syncs is a count"),
        ("bytes.comm>5ms", "number of bytes"),
        ("idle>nan", "no number"),
        ("idle>inf", "no number"),
        ("idle>1e999", "too large"),
        ("step_time>1e308s", "too large"),
        ("step_time>+5%,1e999s", "too large"),
        ("step_time>5ms,200us", "only a limit against a baseline has a floor"),
        ("step_time>-5%,200us", "other side"),
        ("step_time<+5%,200us", "other side"),
        ("count.syncs!=+0,3", "no floor"),
        ("step_time>+5%,200", "unit does not fit"),
        ("step_time>+5%,-200us", "cannot be read"),
        ("step_time=5ms", "hardly ever equal"),
        ("idle!=+0", "hardly ever equal"),
        ("each(step_time)>+5%", "a single step says nothing"),
        ("verdict>host", "cannot be held against"),
        ("verdict=hots", "did you mean host"),
        ("verdict=1", "its limit is a word"),
        ("verdict", "no limit"),
        ("findings<=high", "cannot be held against"),
        ("findings>=hihg", "did you mean high"),
        ("idle>high", "no number"),
        ("idle>5% for 3 of 2", "cannot be"),
        ("idle>5% for 0 of 2", "cannot be"),
        ("idle>5% for 2 of 21", "cannot be"),
        ("idle>5% for 2 of 99999999999", "cannot be read"),
        ("idle>5% for 2", "cannot be read"),
        ("idle>٥%", "cannot be read"),
        ("regression>3%", "no such metric"),
        ("op:" + "x" * 600 + ">1ms", "cannot be read"),
    ],
)
def test_nonsense_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(text)
    told = " ".join(map(str, (refused.value.what, refused.value.hint)))
    assert any(words in told for words in what.split("|")), told
    assert refused.value.exit_code == ExitCode.USAGE
    assert len(str(refused.value.what)) < 300


@pytest.mark.parametrize(
    "text", ["idle" + " " * 490 + "x", " " * 490, "median(idle" + " " * 480 + "x", "a" * 490 + "("]
)
def test_what_cannot_be_read_is_refused_at_once(text: str) -> None:
    """A text of blanks could be cut into places in billions of ways."""
    started = process_time()
    with pytest.raises(UsageError):
        read(text)
    assert process_time() - started < 5


def test_a_gate_belongs_to_its_verb() -> None:
    assert parse_gate("regression>3%", Tuning).limit == 3
    with pytest.raises(UsageError, match="no such metric"):
        parse_gate("step_time>5ms", Tuning)


def test_what_is_relative_needs_a_baseline() -> None:
    gates = [read("idle>5%"), read("idle>+5%")]
    check_baseline(gates, given=True)
    check_baseline(gates[:1], given=False)
    with pytest.raises(UsageError, match="baseline"):
        check_baseline(gates, given=False)


def test_one_form_for_everybody() -> None:
    forms = {
        " WARN :  max( step_time )>=+ 5% , 200US for 2 of 3": "warn: max(step_time)>=+5%,200us for 2 of 3",
        "step_time>1500us": "step_time>1.5ms",
        "step_time>2000us": "step_time>2ms",
        "op:'Mat Mul'>-1ns": 'op:"Mat Mul">-1ns',
        "comm.wait[ dp ]>1": "comm.wait[dp]>1%",
        "finding:ai_cpu": "finding:ai_cpu>0",
        "bytes.comm>2048": "bytes.comm>2KiB",
        "step_time<-0": "step_time<-0ns",
    }
    assert {text: spelled(read(text)) for text in forms} == forms


def conditions(document: type) -> st.SearchStrategy[str]:
    """Texts of gates that can be read, in many forms: metric by metric, with what goes with it."""
    units = {"percent": ["%", ""], "ns": ["ns", "us", "ms", "s", "µs"], "count": [""], "bytes": ["", "KiB", "GB"]}
    names = st.text(st.characters(exclude_characters="\"'", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
    names = names.filter(lambda name: bool(name.strip()))

    @st.composite
    def gate(draw: st.DrawFn) -> str:
        metric = draw(st.sampled_from([*metrics_of(document).values()]))
        space = draw(st.sampled_from(["", " ", "  "]))
        of = draw(st.sampled_from([*metric.arguments()])) if metric.arguments else draw(names)
        name = metric.name
        if metric.argument == "required":
            name = f'{name}:{space}"{of}"'
        elif metric.argument == "optional" and draw(st.booleans()):
            name = f"{name}['{of}']"
        if not metric.words and draw(st.booleans()):
            name = f"{draw(st.sampled_from(['median', 'p95', 'max', 'mean']))}({name})"
        if metric.words and (metric.expects or draw(st.booleans())):
            sign = draw(st.sampled_from(["=", "!="] if metric.expects else [">=", ">", "="]))
            limit = draw(st.sampled_from(metric.words))
        else:
            sign = draw(st.sampled_from([">", ">=", "<", "<="]))
            number = draw(st.floats(0, 1e12, allow_subnormal=False))
            change = draw(st.sampled_from(["", "+", "-"]))
            limit = f"{change}{number!r}{draw(st.sampled_from(units[metric.unit]))}"
            if (sign[0], change) in ((">", "+"), ("<", "-")) and draw(st.booleans()):
                limit += f",{draw(st.integers(0, 10**6))}{units[metric.unit][0]}"
        runs = draw(st.sampled_from(["", " for 1 of 1", " for 2 of 3", " for 20 of 20"]))
        level = draw(st.sampled_from(["", "warn:", "fail: "]))
        return f"{level}{space}{name}{space}{sign}{space}{limit}{runs}"

    return gate()


@settings(max_examples=120)
@given(conditions(Result) | conditions(Tuning).map(lambda text: f"tune {text}"))
def test_print_and_read_again(text: str) -> None:
    document = Tuning if text.startswith("tune ") else Result
    condition = parse_gate(text.removeprefix("tune "), document)
    printed = spelled(condition)
    again = parse_gate(printed, document)
    assert spelled(again) == printed
    assert structs.replace(again, expr="") == structs.replace(condition, expr="")


@settings(max_examples=100)
@given(st.text("median(step_time)>=+-5%,200us for of 23[dp]op:\"'!<warn\x00é", max_size=40) | st.text(max_size=30))
def test_anything_is_read_or_refused(text: str) -> None:
    try:
        condition = read(text)
    except UsageError:
        return
    assert read(spelled(condition)) == structs.replace(condition, expr=spelled(condition))
