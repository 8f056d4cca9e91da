"""What a damaged disk, a careless tool or an enemy puts into a cell, a name or a value."""

from __future__ import annotations

#: Names that something further on could take for more than text.
NAMES = (
    "[x]", "[/red]", "[bold red]x", "\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "bell\x07", "null\x00byte",
    "\u202eright", "\u2066isolated", "two\nlines", "carriage\rreturn", "tab\tbed", "=cmd()", "+1+cmd()", "-2+3",
    "@sum", '"""', "'", "```", "`id`", "$(id)", "a|b|c", "<script>alert(1)</script>", "{name}", "%s", "\\",
    "../../etc/passwd", "\ufeff", "名字", "x" * 70_000,
)  # fmt: skip
#: Cells of a table where a number belongs.
CELLS = (
    "", "N/A", "soon", "nan", "inf", "-inf", "-1", "0", "1e300", "-1e300", "1e-400", str(2**63), str(-(2**63)),
    "9" * 5000, "1.000", "2026-02-30", "0x10", "1_000", "١٢٣", "½", "1,5", " 7 ", "--", "1.2.3", "true", '"', "'7'",
    "7\x00",
)  # fmt: skip
#: Cells of a database. A pair is text in bytes that are no UTF-8.
INVALID_TEXT = b"\xff\xfe\xc3("
VALUES = (
    None, "", "soon", "N/A", "9" * 5000, "1.000", "2026-02-30", b"", b"\xff\x00\xfe", 1e300, -1e300, float("inf"),
    1e-320, 0.5, 2**63 - 1, -(2**63), 2**62, -1, 0, 1, 4294967295,
)  # fmt: skip
#: Numbers of steps, as names carry them.
STEPS = ("ProfilerStep#" + "9" * 30, "ProfilerStep#-1", "ProfilerStep#", "ProfilerStep#1.5", "ProfilerStep#١")


class Raw(str):
    """Text that stands in JSON as it is, valid or not."""


#: Values where JSON has another one.
TREES = (
    None, True, False, 0, -1, 2**63, -(2**63), 1e300, -1e300, 0.5, "", "soon", "7", [], {}, [None], {"a": {}},
    "x" * 1_000_000, Raw("NaN"), Raw("-Infinity"), Raw("1e999"), Raw("-1e999"), Raw("9" * 5000), Raw("-0"),
    Raw("01"), Raw("[" * 5000 + "]" * 5000), Raw('{"a":' * 5000 + "1" + "}" * 5000), Raw("[" * 5000),
    Raw('{"name":1,"name":"x","name":[]}'), Raw('"\\ud800"'), Raw('"\\u0000"'), Raw('"\\x"'), Raw('"tab\there"'),
    Raw("'single'"), Raw("undefined"), Raw(""),
)  # fmt: skip
#: Values of a recipe.
YAML = (
    '!!int "x"', "!!python/object/apply:os.system [id]", "2026-02-30", "2026-13-01T99:99:99", ".inf", ".nan", "~",
    "yes", "-1", "9" * 5000, "0o8", "1e999", "[" * 5000, "{" * 5000, "[" * 5000 + "]" * 5000, "&a [*a]", "*nobody",
    "{<<: 1}", "? [a]", "|\n  x", '"\\ud800"', "'\x07'", "!!binary x", "!!timestamp x", "!!set {a, b}", "{[a]: b}",
    "- a", "\t", "%YAML 9", "190:20:30", "",
)  # fmt: skip
