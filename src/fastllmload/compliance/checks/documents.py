"""Checks figures in run.json, and tables, plots, findings and sentences in procedure.json."""

from __future__ import annotations

import re
from typing import Any

from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true

NEEDED = {"p99": 1_000, "p999": 10_000}


@check
def field(evidence: ComplianceEvidence, /, path: str, remedy: str = "measure with this version") -> RequirementOutcome:
    """Every run.json has a value at *path*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        value = run.get(path)
        return judged(value is not None, f"{path} is {shown(value)}", remedy)

    return each(evidence, judge)


@check
def fields(
    evidence: ComplianceEvidence, /, paths: list[str], remedy: str = "measure with this version"
) -> RequirementOutcome:
    """Every run.json has values at all *paths*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        gone = [path for path in paths if run.get(path) is None]
        return judged(not gone, f"{', '.join(gone)} is missing" if gone else f"{', '.join(paths)} are there", remedy)

    return each(evidence, judge)


def shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


@check
def figures(
    evidence: ComplianceEvidence, /, names: list[str], statistics: list[str], remedy: str = ""
) -> RequirementOutcome:
    """Every run.json has these statistics of these metrics, or says that nothing was measured (n of 0)."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        gone = [
            f"{name}.{statistic}"
            for name in names
            for statistic in statistics
            if run.get(f"metrics.{name}.{statistic}") is None
        ]
        if gone and any(run.get(f"metrics.{name}.n") for name in names):
            return false(f"{', '.join(gone)} is missing", remedy or "measure again with this version")
        if gone:
            return false(f"nothing was measured: {', '.join(gone)}", remedy or "let requests succeed")
        return true(", ".join(f"{name} has {', '.join(statistics)}" for name in names))

    return each(evidence, judge)


@check
def measured(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """Every run.json has *name*, or states that it was not measured."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = run.get(name)
        if not isinstance(found, dict):
            return false(f"{name} is neither given nor marked as not measured", "measure with this version")
        value = found.get("value", found.get("p50"))
        return true(f"{name} is {'not measured' if value is None else shown(value)}")

    return each(evidence, judge)


@check
def samples(evidence: ComplianceEvidence, /, name: str, percentile: str) -> RequirementOutcome:
    """There are as many samples as the percentile needs; with fewer it is flagged in the document and does not count."""
    needed = NEEDED[percentile]

    def judge(run: MeasuredRun) -> RequirementOutcome:
        n = int(run.get(f"metrics.{name}.n") or 0)
        return judged(n >= needed, f"{n:,} samples of {name}, {percentile} needs {needed:,}", f"-n {needed} or longer")

    return each(evidence, judge)


@check
def flagged(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Distributions state their number of samples and the percentiles with too few."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        metrics = run.get("metrics") or {}
        spread = [name for name, found in metrics.items() if isinstance(found, dict) and "p999" in found]
        unflagged = [name for name in spread if "n" not in metrics[name] or "insufficient" not in metrics[name]]
        return judged(
            bool(spread) and not unflagged, f"{len(spread)} distributions with their samples", "measure again"
        )

    return each(evidence, judge)


@check
def buckets(evidence: ComplianceEvidence, /, edges: list[int]) -> RequirementOutcome:
    """TTFT by input length in buckets that begin at *edges*, where lengths vary."""
    different = {int(n) for run in evidence.runs for n in run.ok["input_target"][:1000]}
    if len(different) < 2:
        return inapplicable("all prompts have one length")
    found = tables_with(evidence, ["input tokens"])
    if not found:
        return false("no table of TTFT by input length", "run it as `fastllmload procedure ttft`")
    labels = [str(row[0]).replace(",", "") for row in found[0].get("rows") or () if row]
    begins = [int(first[0]) for label in labels if (first := re.match(r"\d+", label))]
    fits = bool(begins) and set(begins) <= set(edges)
    return judged(fits, f"buckets: {', '.join(labels)}", "run it as `fastllmload procedure ttft`")


@check
def table(evidence: ComplianceEvidence, /, columns: list[str], rows: list[str] | None = None) -> RequirementOutcome:
    """procedure.json has a table with these columns, and with rows whose labels contain these words, in this order."""
    found = tables_with(evidence, columns)
    wanted = [label.casefold() for label in rows or ()]
    for candidate in found:
        place = iter([str(row[0]).casefold() for row in candidate.get("rows") or () if row])
        if all(any(want in label for label in place) for want in wanted):
            return true(f"table {candidate.get('title')!r}")
    if found:
        return false(
            f"no row {' or '.join(rows or ())} in {found[0].get('title')!r}", "let the procedure run to its end"
        )
    return false(f"no table with the columns {', '.join(columns)}", "let the procedure run to its end")


def tables_with(evidence: ComplianceEvidence, columns: list[str]) -> list[dict[str, Any]]:
    """Tables whose columns begin with *columns*, in their order, possibly with others in between."""
    found = []
    for candidate in evidence.asked("tables") or ():
        place = iter([str(column).casefold() for column in candidate.get("columns") or ()])
        if all(any(column.startswith(want.casefold()) for column in place) for want in columns):
            found.append(candidate)
    return found


@check
def plot(evidence: ComplianceEvidence, /, words: list[str]) -> RequirementOutcome:
    """procedure.json has a plot whose id or title has one of *words*."""
    for candidate in evidence.asked("plots") or ():
        label = f"{candidate.get('id')} {candidate.get('title')} {candidate.get('kind')}".casefold()
        if any(word in label for word in words) and candidate.get("series"):
            return true(f"plot {candidate.get('title')!r}")
    return false("no such plot", "let the procedure run to its end")


@check
def finding(evidence: ComplianceEvidence, /, names: list[str], words: list[str] | None = None) -> RequirementOutcome:
    """procedure.json has one of the findings, columns or rows *names*, or a sentence with one of *words*."""
    values = evidence.asked("findings") or {}
    for name in names:
        if name in values:
            return true(f"{name} is {shown(values[name])}")
    for candidate in evidence.asked("tables") or ():
        labels = [*candidate.get("columns", ()), *(row[0] for row in candidate.get("rows") or () if row)]
        texts = [str(label).casefold().replace("_", " ") for label in labels]
        if any(text.startswith(name.casefold().replace("_", " ")) for text in texts for name in names):
            return true(f"in the table {candidate.get('title')!r}")
    sentences = " | ".join(str(text) for text in evidence.asked("sentences") or ()).casefold()
    if any(word.casefold() in sentences for word in words or ()):
        return true("in a sentence of the result")
    return false(f"{names[0].replace('_', ' ')} is not reported", "let the procedure run to its end")


@check
def reported(evidence: ComplianceEvidence, /, names: list[str]) -> RequirementOutcome:
    """The five blocks of a test's report are in procedure.json, or these *names* in run.json for a plain run."""
    document = evidence.procedure or (evidence.runs[0].run.manifest if evidence.runs else {})
    wanted = names if evidence.procedure is None else ["parameters", "levels", "findings", "tables"]
    gone = [name for name in wanted if name not in document]
    return judged(
        not gone, f"{'all blocks are' if not gone else ', '.join(gone) + ' is not'} there", "run it to its end"
    )


@check
def figures_there(evidence: ComplianceEvidence, /, names: list[str]) -> RequirementOutcome:
    """Every run.json has these metrics, measured or null."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        gone = [name for name in names if not isinstance(run.get(f"metrics.{name}"), dict)]
        return judged(not gone, f"{', '.join(gone or names)} {'is missing' if gone else 'are there'}", "measure again")

    return each(evidence, judge)


@check
def has(evidence: ComplianceEvidence, /, name: str, key: str) -> RequirementOutcome:
    """The entry of a metric has *key*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        value = run.get(f"metrics.{name}.{key}")
        return judged(value is not None, f"{name}: {key} is {shown(value)}", "measure with this version")

    return each(evidence, judge)


@check
def unit(evidence: ComplianceEvidence, /, names: list[str], unit: str) -> RequirementOutcome:
    """Metrics are given in *unit*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        other = [name for name in names if run.get(f"metrics.{name}.unit") != unit]
        return judged(not other, f"{', '.join(other or names)}: {'not ' if other else ''}in {unit}", "measure again")

    return each(evidence, judge)


@check
def preset(evidence: ComplianceEvidence, /, name: str, alpha: float, speed: float) -> RequirementOutcome:
    """A smooth goodput has these parameters."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = (run.get(f"metrics.{name}.alpha"), run.get(f"metrics.{name}.speed_tok_s"))
        return judged(found == (alpha, speed), f"alpha {found[0]}, {found[1]} tokens/s", "leave out --reading-speed")

    return each(evidence, judge)


@check
def not_events(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Output counts come from the server, a tokenizer or estimates from the text, never from the number of events."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        sources = run.get("counts.output_tokens_source") or {}
        known = set(sources) <= {"usage", "tokenizer", "estimate", "none"} and bool(sources)
        counts = ", ".join(f"{number:,} from {name}" for name, number in sources.items() if number)
        return judged(known, f"output tokens: {counts or 'none'}", "measure with this version")

    return each(evidence, judge)


@check
def power_window(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Power was sampled during this run only: telemetry ended with it."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        if run.get("metrics.power_w.value") is None:
            return inapplicable("no power was measured")
        ended = run.get("telemetry.ended")
        return judged(
            bool(ended), f"telemetry of this run {'ended with it' if ended else 'was cut short'}", "measure again"
        )

    return each(evidence, judge)


@check
def delay_small(evidence: ComplianceEvidence, /, us: float) -> RequirementOutcome:
    """P99 of the delay from the kernel's stamp to the program is below *us* microseconds."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        late = run.get("certificate.socket_to_user_us.p99")
        if late is None:
            return inapplicable("the kernel gave no time stamps")
        return judged(
            float(late) < us, f"P99 from socket to program is {float(late):,.0f} us", "give it a quieter host"
        )

    return each(evidence, judge)
