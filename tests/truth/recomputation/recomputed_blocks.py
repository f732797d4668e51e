"""What run.json says of objectives, classes, conversations, users and errors, again in plain Python from the export.

In addition to the metrics of `recomputed`: by how much objectives were missed, what each class and turn saw, and
who left.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from truth.recomputation.recomputed import GAPS, MS, Line, Recomputed, less
from truth.recomputation.recomputed_numbers import described, over

LEFT = ("client_cancelled", "client_abandoned")


class Blocks(Recomputed):
    def excess(self, line: Line, metric: str, limit: float) -> float | None:
        """By how much an answer missed: ms, or for fluidity the share that is lacking. None without a value."""
        value: float | None
        if metric in ("ttft", "ttft_sched", "e2el", "e2el_sched"):
            start = "sched" if metric.endswith("sched") else "submit"
            value = less(line, start, "first" if metric.startswith("ttft") else "last")
        elif metric == "tpot":
            value = self.tpot(line)
        elif metric in ("itl", "tbt", "tbc"):
            value = max(self.gaps(line, "A" if metric == "tbc" else "direct"), default=None)
        elif metric == "idle":
            value = self.idle(line, self.speed)
        elif metric == "reading":
            late = self.lateness(line, limit, line["_from"])
            return None if late is None else late / MS
        else:
            share = self.fluidity(line)["fluidity_index"]
            return None if share is None else limit - share
        return None if value is None else (value - round(limit * MS)) / MS

    def each_objective(self) -> list[dict[str, Any]]:
        found = []
        for name, limit in self.output["goodput"]:
            metric = name.rpartition("/")[2]
            mine = [line for line in self.submitted if self.about(line, name)]
            missed = [line for line in mine if line["status"] == "ok" and not self.one(line, metric, limit)]
            met = sum(self.one(line, metric, limit) for line in mine)
            by = described([e for line in missed if (e := self.excess(line, metric, limit)) is not None])
            found.append({
                "objective": name, "limit": limit, "submitted": len(mine), "met": met, "attainment": over(met, len(mine)),
                "missed": len(missed), "failed": sum(line["status"] != "ok" for line in mine),
                "excess": {key: by[key] for key in ("n", "mean", "std", "min", "max", "p50", "p99")},
            })  # fmt: skip
        return found

    def by_class(self) -> dict[str, dict[str, Any]]:
        """`slo.classes`."""
        found = {}
        for name in dict.fromkeys(line["class"] for line in self.submitted):
            met = [self.meets(line) for line in self.submitted if line["class"] == name]
            found[str(name)] = {"met": sum(met), "submitted": len(met), "slo_attainment": over(sum(met), len(met))}
        return found

    def gaps_of_classes(self) -> dict[str, dict[str, Any]]:
        """Of `classes`: gaps under the option of each class, and who was planned, failed, left."""
        stated = self.document["classes"]
        found = {}
        for name in dict.fromkeys(line["class"] for line in self.measured):
            mine = [line for line in self.measured if line["class"] == name]
            option = "direct" if stated[str(name)]["itl"]["n"] else "A"
            gaps = [gap for line in self.ok if line["class"] == name for gap in self.gaps(line, option)]
            found[str(name)] = {
                GAPS[option]: described(gaps, MS), "failed": sum(self.failed(line) for line in mine),
                "left": sum(line["error"] in LEFT for line in mine),
            }  # fmt: skip
        return found

    def failed(self, line: Line) -> bool:
        return line["status"] not in ("ok", "not_sent", "in_flight") and line["error"] not in LEFT

    def latencies_of_classes(self) -> dict[str, dict[str, Any]]:
        """Of `fairness.classes`."""
        found = {}
        for name in dict.fromkeys(line["class"] for line in self.submitted):
            mine = [line for line in self.ok if line["class"] == name]
            ttft = described([less(line, "submit", "first") for line in mine], MS)
            found[str(name)] = {"ok": len(mine), "ttft": ttft, "tpot": described([self.tpot(x) for x in mine], MS)}
        return found

    def talks(self) -> dict[str, Any]:
        """`conversations`."""
        sent = [line for line in self.measured if line["status"] != "not_sent"]
        turns = []
        for turn in sorted({line["turn"] for line in self.ok}):
            mine = [line for line in self.ok if line["turn"] == turn]
            counted = [line for line in mine if line["output_tokens_source"] == "usage"]
            cached = [line for line in counted if line["cached_tokens"] is not None]
            turns.append({
                "turn": turn, "requests": len(mine), "ttft": described([less(x, "submit", "first") for x in mine], MS),
                "prompt_tokens_mean": statistics.fmean(x["input_tokens"] for x in counted) if counted else None,
                "cached_share": over(sum(x["cached_tokens"] for x in cached), sum(x["input_tokens"] for x in cached)),
            })  # fmt: skip
        return {
            "planned": len({line["session_id"] for line in self.measured}),
            "begun": len({line["session_id"] for line in sent}), "turns_sent": len(sent), "turns": turns,
        }  # fmt: skip

    def people(self) -> dict[str, Any]:
        """`users`."""
        return {
            "chosen_to_leave": sum("cancels" in (line["client"] or "") for line in self.measured),
            "left_by_plan": sum(line["error"] == "client_cancelled" for line in self.measured),
            "gave_up": sum(line["error"] == "client_abandoned" for line in self.measured),
            "slow_readers": sum("slow_reader" in (line["client"] or "") for line in self.measured),
        }

    def causes(self) -> Counter[tuple[Any, ...]]:
        """`errors`, by what the export says of them too."""
        lines = [line for line in self.measured if self.failed(line)]
        return Counter((line["status"], line["error"] or "none", line["http_status"] or 0) for line in lines)

    def sources(self) -> dict[str, int]:
        """`counts.output_tokens_source`."""
        return Counter(line["output_tokens_source"] or "none" for line in self.all_ok)


def blocks_of(lines: list[Line], document: dict[str, Any]) -> dict[str, Any]:
    """As much of run.json as is recomputed here."""
    mine = Blocks(lines, document)
    found: dict[str, Any] = {"counts": {"output_tokens_source": dict(mine.sources())}}
    if document["slo"] is not None:
        found["slo"] = {"objectives": mine.each_objective(), "classes": mine.by_class()}
        found["slo"]["smooth_goodput"] = {
            name: mine.metrics()[f"smooth_goodput_{name.replace('-', '_')}"]["value"]
            for name in document["slo"]["smooth_goodput"]
        }
        if not document["slo"]["classes"]:
            del found["slo"]["classes"]
    if document["classes"] is not None:
        found["classes"], found["fairness"] = mine.gaps_of_classes(), {"classes": mine.latencies_of_classes()}
    if document["conversations"] is not None:
        found["conversations"] = mine.talks()
    if document["users"] is not None:
        found["users"] = mine.people()
    return found


def stated_causes(document: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for each in document["errors"]:
        found[each["status"], each["error"] or "none", each["http_status"] or 0] += each["count"]
    return found


def listed(found: Any) -> Any:
    """Lists as tables by position, so that `compared` goes into them; their length is compared too."""
    if isinstance(found, list):
        return {"length": len(found), **{str(k): listed(each) for k, each in enumerate(found)}}
    return {key: listed(value) for key, value in found.items()} if isinstance(found, dict) else found
