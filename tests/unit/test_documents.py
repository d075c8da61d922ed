"""What the documents name is there, and the figures they show are those of the results."""

from __future__ import annotations

import json
import math
import re
import statistics
from typing import Any

import pytest

from docs.hooks import openapi
from jobs.experiments.catalogue import TABLES
from jobs.experiments.suites import SUITES
from tests.support.blocks import PAGES
from tests.support.places import ROOT

TOPS = ("tacl", "cluster", "jobs", "tests", "docs", "examples")
FILES = [str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py")]
NAMED = re.compile(r"`([\w/.]*\w\.py)(?:: ([\w., ]+))?`")
FILE = re.compile(r"`((?:results|examples|docs|cluster|tacl|jobs)/[\w./-]+\.(?:md|py))`")
LINK = re.compile(r"\]\((?!http)([^)#\s]+)")
ROWS = {  # of the tables of methods in README.md and docs/explanation/measured.md
    "the base model alone": "zero-shot",
    "no training": "zero-shot",
    "a model for each task": "individual",
    "one training for all tasks": "mtl",
    "the same with one softmax over all classes, trained as long as the last row": "mtl-softmax",
    "the same with one softmax over all classes, for twice as long": "mtl-softmax",
    "logistic regression on the frozen base": "frozen-logistic",
    "the same, inner blocks of the base beside its features": "frozen-inner-logistic",
    "sum of ordinary vectors": "ordinary",
    "sum of LoRA adapters": "lora",
    "TIES": "ties",
    "TSV-M": "tsv-m",
    "TSV-M, of models trained as long as the last row": "tsv-m-longer",
    "TSV-M of models that are trained for twice as long": "tsv-m-longer",
    "AdaMerging": "adamerging",
    "aTLAS": "atlas",
    "sum of linear vectors": "linear",
    "sum of linear vectors, best coefficient": "linear-grid",
    "sum of linear vectors, each refreshed": "linear+refresh",
    "sum of tauJp vectors": "taujp",
    "the same, each refreshed": "taujp+refresh",
    "the same sum, heads fitted again": "taujp+fitted",
    "trained for longer, mixed penalty, heads fitted again": "mixed-longer+fitted",
    "the same, heads that read inner blocks too": "mixed-longer+inner",
}
FROZEN = ("frozen-logistic", "frozen-inner-logistic")
FITTED = ("taujp+fitted", "mixed-longer+fitted", "mixed-longer+inner")
CONDITIONS = {  # of README.md: the results, the column in them, and whose figures follow each other
    "the task of an input is not named, last three rows": (
        ("addition-text8", "class_incremental"),
        (*FITTED, *FROZEN, "mtl-softmax", "taujp"),
    ),
    "tasks arrive one by one, all vectors refreshed each time": (
        ("continual-text8", "acc"),
        ("taujp+refresh", "sequential"),
    ),
    "eight picture tasks, EfficientNet-Lite0, λ 1": (
        ("addition-vision8", "absolute"),
        ("mixed-longer+inner", *FROZEN, "tsv-m"),
    ),
    "the same, the task not named": (
        ("addition-vision8", "class_incremental"),
        ("mixed-longer+inner", *FROZEN),
    ),
}
FURTHER = {  # tables of measured.md: of a column the results and the key, of each row its method
    "| method | task unknown": (
        [("addition-text8", "class_incremental")],
        "taujp mtl frozen-logistic taujp+fitted frozen-inner-logistic mixed-longer+fitted "
        "mixed-longer+inner mtl-softmax mtl-softmax+logistic",
    ),
    "| method | eight tasks": (
        [("continual-text8", "acc"), ("continual-text14", "acc")],
        "linear opcm sequential taujp magmax taujp+refresh joint",
    ),
    "| all fourteen": (
        [
            ("float32/addition-text14", "absolute"),
            ("float32/addition-text14", "class_incremental"),
        ],
        "zero-shot frozen-logistic frozen-inner-logistic arriving+refresh+inner",
    ),
    "| method | task known": (
        [("addition-vision8", "absolute"), ("addition-vision8", "class_incremental")],
        "zero-shot linear ties tsv-m taujp - frozen-logistic mixed-longer frozen-inner-logistic "
        "mixed-longer+fitted mixed-longer+inner mixed-longer+refresh+inner",
    ),
}
SUMS = {  # of results/README.md: the row of each suite's goals
    "text8": ("addition-text8", "mixed-longer+inner"),
    "vision8": ("addition-vision8", "mixed-longer+inner"),
    "text14": ("float32/addition-text14", "arriving+refresh+inner"),
}
OVER = {
    "best frozen baseline": "frozen-inner-logistic",
    "best on the last layer": "frozen-logistic",
    "joint training": "mtl-softmax",
    "TSV-M": "tsv-m",
}
MEASURES = {
    "task known": "absolute",
    "task unknown": "class_incremental",
    "normalised": "normalised",
    "calibration error": "calibration_error",
    "AUROC, a task left out": "none_auroc",
    "AUROC, generic set": "none_auroc_generic",
}
PARTIAL = [  # tables of which results/README.md lists the rows that are missing
    "addition-text8",
    "addition-vision8",
    "float32/addition-text14",
    "continual-text8",
    "continual-text14",
    "negation-text8",
]
SEEDS = {"": 3, "¹": 1, "²": 2}  # by what is written behind a row or a figure
FIGURE = re.compile(r"(\d+\.\d)(?: ± (\d+\.\d))?([¹²]?)")
TIMED = re.compile(r"docs/(how-to/|tutorial|metrics)")
TESTS = re.compile(r"`((?:unit|integration|stress)/\w[\w/]*)`")
TIMES = re.compile(r"\d+ to \d+ minutes")
LINKED = [  # README.md, and what MkDocs does not look at
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "cluster/deploy/README.md",
    "results/README.md",
]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_files_and_names_in_them_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    found = NAMED.findall(text)
    assert found
    for path, names in found:
        files = [file for file in FILES if file == path or file.endswith(f"/{path}")]
        assert files, f"{document} names {path}, which is not there"
        code = "\n".join((ROOT / file).read_text() for file in files)
        for name in re.findall(r"\w+", names.replace(".", " ")):
            assert re.search(rf"\b{name}\b", code), f"{document}: no {name} in {path}"


@pytest.mark.parametrize("document", sorted({*PAGES, *LINKED}))
def test_files_that_are_named_exist(document: str) -> None:
    named = FILE.findall((ROOT / document).read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", LINKED)
def test_files_that_are_linked_exist(document: str) -> None:
    linked = LINK.findall((ROOT / document).read_text())
    assert linked
    folder = (ROOT / document).parent
    assert [name for name in linked if not (folder / name).exists()] == []


def test_the_base_model_has_one_name() -> None:
    """Where users read: an encoder is an architecture, and the glossary says so."""
    read = {page: (ROOT / page).read_text() for page in PAGES if page != "docs/glossary.md"}
    read["/v1/openapi.json"] = json.dumps(openapi())
    assert [place for place, text in read.items() if re.search(r"\bencoders?\b", text, re.I)] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def summary(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"results/{name}.json").read_text())["summary"]


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the table with this heading; a row of few seeds is marked in one way."""
    text = (ROOT / document).read_text().replace("*", "")
    text = text.replace(" (one seed)", "¹").replace(" (two seeds)", "²")
    table = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]


@pytest.mark.parametrize("document", ["README.md", "docs/explanation/measured.md"])
def test_methods_have_the_figures_of_the_results(document: str) -> None:
    results, table = summary("addition-text8"), rows(document, "| method | data")
    for row, _, *cells in table:
        method = row.rstrip("¹²")
        for name, cell in zip(("absolute", "normalised"), cells, strict=True):
            measured = results[ROWS[method]][name]
            if cell:
                assert cell == f"{100 * measured['mean']:.1f}", row
                assert measured["count"] == SEEDS[row.removeprefix(method)], row
    assert len({ROWS[row.rstrip("¹²")] for row, *_ in table}) == len(table) > 15


@pytest.mark.parametrize("heading", FURTHER)
def test_further_tables_have_the_figures_of_the_results(heading: str) -> None:
    columns, methods = FURTHER[heading]
    table = rows("docs/explanation/measured.md", heading)
    for (row, *cells), method in zip(table, methods.split(), strict=True):
        for (results, key), cell in zip(columns, cells, strict=False):
            if method != "-" and cell:
                (mean, deviation, _) = FIGURE.findall(cell)[0]
                measured = summary(results)[method][key]
                assert mean == f"{100 * measured['mean']:.1f}", row
                assert deviation in ("", f"{100 * (measured['deviation'] or 0):.1f}"), row


def test_conditions_have_the_figures_of_the_results() -> None:
    table = {row: FIGURE.findall("".join(cells)) for row, *cells in rows("README.md", "| | sum of")}
    assert table.keys() == CONDITIONS.keys()
    for row, ((results, column), methods) in CONDITIONS.items():
        for (mean, deviation, mark), method in zip(table[row], methods, strict=True):
            measured = summary(results)[method][column]
            assert mean == f"{100 * measured['mean']:.1f}", (row, method)
            assert deviation in ("", f"{100 * (measured['deviation'] or 0):.1f}"), (row, method)
            assert measured["count"] == SEEDS[mark], (row, method)


def measured_goal(suite: str, measure: str, over: str) -> tuple[float, float, str]:
    """Value, the least that it may be, and as it is shown."""
    name, method = SUMS[suite]
    found = json.loads((ROOT / f"results/{name}.json").read_text())
    entries = [one for one in found["entries"] if one["variant"] == method]
    seeds, shown = len(entries), ""
    if measure == "own vector":
        own = [by_task(found, name, "individual") for name in ("mixed-longer", "individual-longer")]
        gains: dict[int, list[float]] = {}
        for seed, task in own[0].keys() & own[1].keys():
            gains.setdefault(seed, []).append(100 * (own[0][seed, task] - own[1][seed, task]))
        values, seeds = [statistics.fmean(of) for of in gains.values()], len(gains)
        value = low = statistics.fmean(values)
        shown = f"{value:+.1f}" + (f" ± {statistics.stdev(values):.1f}" if seeds > 1 else "")
    elif over:
        pair = (method, OVER[over], MEASURES[measure])
        (one,) = (
            one
            for one in found["differences"]
            if (one["variant"], one["against"], one["key"]) == pair
        )
        value, low, high = (100 * one[part] for part in ("mean", "low", "high"))
        seeds, shown = len(one["seeds"]), f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
    elif measure == "submit":
        costs = [[one[part]["cpu_seconds"] for part in ("training", "merging")] for one in entries]
        training, fit = map(statistics.fmean, zip(*costs, strict=True))
        value = low = (training + fit) / training
        shown = f"{value:.2f}"
    else:
        values = [100 * (one["numbers"] | one["more"])[MEASURES[measure]] for one in entries]
        value = low = statistics.fmean(values)
        shown = f"{value:.1f}" + (f" ± {statistics.stdev(values):.1f}" if seeds > 1 else "")
    return value, low, shown + {count: mark for mark, count in SEEDS.items()}[seeds]


def verdict(goal: str, value: float, low: float) -> str:
    if not goal:
        return "no goal"
    sign, bound = goal.split()
    if sign == ">":
        return "met" if low > float(bound) else "not shown"
    met = value >= float(bound) if sign == "≥" else value <= float(bound)
    return "met" if met else "below its goal" if sign == "≥" else "above its goal"


def test_goals_have_the_figures_of_the_results_and_say_which_are_missed() -> None:
    table = rows("results/README.md", "| suite | of the sum")
    for suite, measure, over, goal, found, said in table:
        value, low, shown = measured_goal(suite, measure, over)
        assert (found, said) == (shown, verdict(goal, value, low)), (suite, measure, over)
    assert {suite for suite, *_ in table} == SUMS.keys()
    assert {measure for _, measure, *_ in table} == {*MEASURES, "submit", "own vector"}
    assert {over for *_, over, _, _, _ in table} == {*OVER, "", "without penalty"}


@pytest.mark.parametrize("over", ["best frozen baseline", "best on the last layer"])
@pytest.mark.parametrize("suite", SUMS)
def test_goals_are_held_against_the_best_frozen_baseline(suite: str, over: str) -> None:
    results = summary(SUMS[suite][0])
    frozen = [n for n in results if "frozen" in n and ("layer" not in over or "inner" not in n)]
    for key in ("absolute", "class_incremental"):
        assert max(frozen, key=lambda name: results[name][key]["mean"]) == OVER[over]


def missing(name: str) -> tuple[str, str]:
    """Rows of one seed with what one costs, and rows of none."""
    spec, _, suite = name.rpartition("/")[2].rpartition("-")
    found = json.loads((ROOT / f"results/{name}.json").read_text())
    costs: dict[str, list[float]] = {}
    for one in found["entries"]:
        cost = one["training"]["cpu_seconds"] + one["merging"]["cpu_seconds"]
        costs.setdefault(one["variant"], []).append(cost)
    one_seed = {row: cost for row, (cost, *more) in costs.items() if not more}
    none = [row for row in TABLES[spec].variants(SUITES[suite]()) if row not in costs]
    shown = (f"{row} ({cost:,.0f})" if cost else row for row, cost in one_seed.items())
    return ", ".join(shown), ", ".join(none)


def test_rows_that_are_missing_are_listed() -> None:
    listed = {name: (few, none) for name, few, none in rows("results/README.md", "| table | one")}
    assert listed.keys() == set(PARTIAL)
    for name, (few, none) in listed.items():
        expected = missing(name)
        assert (few, none) == (expected[0], none if none == "all others" else expected[1])


def test_tables_that_are_named_are_there() -> None:
    text = (ROOT / "results/README.md").read_text()
    (named,) = re.findall(r"The tables are (.*?)\.\n", text, re.DOTALL)
    there = {path.stem.rpartition("-")[0] for path in (ROOT / "results").glob("*-*[84].json")}
    assert {*re.findall(r"`([\w-]+)`", named)} == there
    (absent,) = re.findall(r"Not run on any suite: (.*?);", text)
    assert {*re.findall(r"`([\w-]+)`", absent)} == TABLES.keys() - there


def against_best_alone(suite: str) -> tuple[list[float], list[float]]:
    """Of the best single-task models of three seeds, and of usual fine-tuning, the mean; of the
    sums `mixed-longer+inner` and `taujp` their share in the best, and beside these the standard
    errors that so many test rows have."""
    found = json.loads((ROOT / f"results/addition-{suite}.json").read_text())
    told = {name: one["individual"] for name, one in found["summary"].items()}
    alone = {name: one["mean"] for name, one in told.items() if one and one["count"] == 3}
    best = max(alone, key=alone.__getitem__)
    own, figures, errors = by_task(found, best, "individual"), [alone[best], alone["ordinary"]], []
    for name in ("mixed-longer+inner", "taujp"):
        ours = by_task(found, name, "absolute")
        figures.append(statistics.fmean(ours[one] / own[one] for one in own))
        spread = [
            p * (1 - p) / found["data"][t]["test"] / own[s, t] ** 2 for (s, t), p in ours.items()
        ]
        errors.append(math.sqrt(statistics.fmean(spread) / len(found["entries"][0]["tasks"])))
    return figures, errors


def by_task(found: dict[str, Any], name: str, key: str) -> dict[tuple[int, str], float]:
    """Of a row, by seed and task."""
    entries = [one for one in found["entries"] if one["variant"] == name]
    return {(one["seed"], t): of[key] for one in entries for t, of in one["tasks"].items()}


def test_none_of_these_is_told_as_well_as_it_was_measured() -> None:
    """On test rows where the home has the task; else on validation rows of heads-choice.md."""
    readme = (ROOT / "README.md").read_text()
    said = readme[readme.index("with an AUROC of") : readme.index("Measuring and refreshing cost")]
    home, _, _ = measured_goal("text8", "AUROC, a task left out", "")
    product = rows("results/heads-choice.md", "| text8 | never seen | the home")[-2][1]
    pictures = rows("results/heads-choice.md", "| vision8 | never seen | the home")[-1][1]
    never = [cell.split()[0] for cell in (product, pictures)]
    assert re.findall(r"\d+\.\d", said) == [f"{home:.1f}", *never]


def test_sums_are_told_against_the_best_single_task_models() -> None:
    table = rows("docs/explanation/measured.md", "| | eight text tasks")
    for column, suite in enumerate(("text8", "vision8"), 1):
        (best, usual, *kept), errors = against_best_alone(suite)
        expected = [f"{100 * one:.1f}" for one in (best, usual)]
        for share, error in zip(kept, errors, strict=True):
            expected.append(f"{100 * share:.1f} ± {100 * error:.1f} %")
        assert [row[column] for row in table] == expected, suite


def test_what_joint_training_costs_is_that_of_the_results() -> None:
    entries = json.loads((ROOT / "results/addition-text8.json").read_text())["entries"]
    ours, *joint = (
        statistics.fmean(
            one["training"]["cpu_seconds"] for one in entries if one["variant"] == name
        )
        for name in ("mixed-longer+inner", "mtl", "mtl-softmax")
    )
    said = (ROOT / "docs/explanation/choosing.md").read_text()
    (shares,) = re.findall(r"at (\d+) and (\d+) % of the\s+training", said)
    assert [*shares] == [f"{100 * one / ours:.0f}" for one in joint]


def test_the_demo_ends_as_its_page_shows() -> None:
    page = (ROOT / "docs/explanation/demo.md").read_text()
    last = [line.split() for line in page.splitlines() if line.startswith("mean ")][-1]
    zero_shot, own, never, refreshed = last[1:]
    readme = (ROOT / "README.md").read_text()
    said = re.search(r"The demo ends .*?\(", readme, re.DOTALL)
    assert said is not None
    assert re.findall(r"\d+\.\d", said[0]) == [refreshed, zero_shot, own, never]
    frozen = re.findall(r"A classifier on the base model, fitted on the same rows: ([\d.]+);", page)
    assert re.findall(r"A classifier on the base has ([\d.]+)\.\n", readme) == frozen


@pytest.mark.parametrize("page", [page for page in PAGES if TIMED.match(page)])
def test_a_page_says_at_its_head_how_long_it_takes(page: str) -> None:
    """Or that this was not timed."""
    head = (ROOT / page).read_text().split("\n\n")[1]
    assert re.search(r"[Ss]econd|[Mm]inute|timed", head), head


def test_every_promise_names_tests_that_are_there() -> None:
    text = (ROOT / "docs/promises.md").read_text()
    named = TESTS.findall(text)
    assert len(named) > 40
    missing = sorted({one for one in named if f"tests/{one}.py" not in FILES})
    assert not missing, f"docs/promises.md names tests that are not there: {missing}"


@pytest.mark.parametrize("package", ["tacl", "cluster", "jobs"])
def test_the_architecture_names_every_room(package: str) -> None:
    """And every file beside the rooms."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    (about,) = re.findall(rf"\n\*\*{package}\*\*,.*?(?=\n\*\*|\nWhat travels)", text, re.DOTALL)
    tops = {path.stem for path in (ROOT / package).iterdir() if path.suffix in ("", ".py")}
    rooms = {name for name in tops if not name.startswith("_")}
    assert len(rooms) >= 6
    assert rooms - set(re.findall(r"`(\w+)`", about)) == set()


def test_contributing_names_every_target_of_make() -> None:
    """With the same time; and none that is not there."""
    makefile = (ROOT / "Makefile").read_text()
    targets = dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefile, re.MULTILINE))
    shown, *rest = (ROOT / "CONTRIBUTING.md").read_text().split("```\n")[1:]
    lines = dict(re.findall(r"^make (\S+) +# (.*)$", shown, re.MULTILINE))
    assert lines.keys() == targets.keys() - {"help"}
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert {*phony[1].split()} == targets.keys()
    for name, line in lines.items():
        assert TIMES.findall(line) == TIMES.findall(targets[name]), name
    assert {*re.findall(r"`make ([a-z-]+)", "".join(rest))} <= lines.keys()
