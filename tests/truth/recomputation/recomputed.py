"""Every metric of run.json again, in plain Python out of `export --format jsonl` and the settings, from the definitions
of spec/metrics 2 to 6. Nothing of fastllmload is imported: whatever differs is wrong in one of the two."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import Any

from truth.recomputation.recomputed_numbers import (
    Q,
    deadlines,
    described,
    min_tbt,
    modes,
    modes_within,
    moment_tail,
    over,
    quantile,
    spread,
)

Line = dict[str, Any]
MS = 1e6
GAPS = {"direct": "itl", "A": "tbc", "B": "itl_b"}
FLUID = ("fluidity_index", "fluidity_index_decode", "fluidity_index_deadline", "deadline_miss_rate")
STATUSES = ("ok", "empty", "refused", "http_error", "rate_limited", "truncated", "timeout", "connection_error",
            "protocol_error", "cancelled", "not_sent", "in_flight", "stream_error")  # fmt: skip


def less(line: Line, start: str, end: str) -> int | None:
    a, b = line[f"t_{start}_ns"], line[f"t_{end}_ns"]
    return None if a is None or b is None else int(b - a)


def less_connected(line: Line) -> int | None:
    a, b = line["t_dispatch_ns"], line["t_connected_ns"]
    return None if a is None or b is None else int(b - a)


class Recomputed:
    """*lines*: the export; *config*: run.json "config"; *phases*, *window* likewise."""

    def __init__(self, lines: list[Line], document: dict[str, Any]) -> None:
        self.lines, self.document = lines, document
        self.config = document["config"]
        self.output = self.config["output"]
        self.measured = [line for line in lines if line["phase"] == "measure"]
        self.w0, self.w1, self.closed = self.window()
        self.seconds = (self.w1 - self.w0) / 1e9
        self.submitted = [line for line in self.measured if self.counts(line) and self.in_window(self.instant(line))]
        self.ok = sorted(
            (line for line in self.submitted if line["status"] == "ok"), key=lambda line: line["t_sched_ns"]
        )
        self.all_ok = [line for line in self.measured if line["status"] == "ok"]
        for line in lines:
            self.tokens_of(line)

    # -- window and populations (2)

    def window(self) -> tuple[int, int, bool]:
        phase = next(each for each in self.document["phases"] if each["name"] == "measure")
        if phase["bound"] == "duration":
            length = phase["end_ns"] - phase["start_ns"]
            return phase["start_ns"] + round(phase["ramp_share"] * length), phase["end_ns"], False
        first = min(line["t_submit_ns"] for line in self.measured if line["t_submit_ns"])
        last = max(line["t_end_ns"] for line in self.measured if line["t_end_ns"])
        return first + round(phase["ramp_share"] * (last - first)), last, True

    def inside(self, t: int | None) -> bool:
        return t is not None and self.w0 <= t and (t <= self.w1 if self.closed else t < self.w1)

    def instant(self, line: Line) -> int | None:
        return line["t_dispatch_ns"] if line["t_submit_ns"] is None else line["t_submit_ns"]

    def in_window(self, t: int | None) -> bool:
        return self.inside(t) or (t is not None and self.closed and t < self.w0)

    def counts(self, line: Line) -> bool:
        apart = line["error"] == "client_cancelled" or "slow_reader" in (line["client"] or "")
        return line["status"] not in ("not_sent", "in_flight") and not apart

    # -- token times (3.4)

    def tokens_of(self, line: Line) -> None:
        """`_n`, timed tokens; `_t`, a time per token (option B); `_known`, whether chunks' tokens are known."""
        counts = line["token_counts"]
        line["_known"] = all(count is not None for count in counts)
        each = counts if line["_known"] else [1] * len(counts)
        line["_t"] = [t for t, k in zip(line["token_ns"], each, strict=True) for _ in range(k)]
        line["_n"] = line["timed_tokens"]
        line["_from"] = self.instant(line)

    def gaps(self, line: Line, option: str) -> list[int]:
        if not self.streamed(line):
            return []
        times = line["token_ns"] if option == "A" else line["_t"]
        return [b - a for a, b in pairwise(times)]

    # -- per request (5)

    def of_ok(self) -> dict[str, tuple[list[float | None], float]]:
        """name: values in ns or 1/s, and what to divide by for the unit of run.json."""
        ok = self.ok
        found: dict[str, tuple[list[Any], float]] = {}
        for name, (start, end) in {
            "ttft": ("submit", "first"), "ttft_sched": ("sched", "first"), "ttft_any": ("submit", "any"),
            "ttft_any_sched": ("sched", "any"), "ttft_dispatch": ("dispatch", "first"), "ttfb": ("submit", "headers"),
            "ttfb_sched": ("sched", "headers"), "dispatch_lag": ("sched", "dispatch"), "send_time": ("dispatch", "submit"),
            "e2e": ("submit", "last"), "e2e_sched": ("sched", "last"), "e2e_dispatch": ("dispatch", "last"),
            "total_duration": ("submit", "end"), "total_duration_sched": ("sched", "end"), "final_silence": ("last", "end"),
        }.items():  # fmt: skip
            found[name] = ([less(line, start, end) for line in ok], MS)
        found["gen_duration"] = ([self.gen(line) for line in ok], MS)
        found["tpot"] = ([self.tpot(line) for line in ok], MS)
        found["tpot_n"] = ([self.spaced(line, over(less(line, "first", "last"), line["_n"])) for line in ok], MS)
        any_ns = [(line, over(less(line, "any", "last"), line["output_tokens"] - 1)) for line in ok]
        found["tpot_any"] = ([self.spaced(line, each) for line, each in any_ns], MS)
        for name, start in (("norm_latency", "submit"), ("norm_latency_sched", "sched")):
            found[name] = ([over(less(line, start, "last"), line["output_tokens"]) for line in ok], MS)
        found["decode_tok_s"] = ([over(1e9, self.tpot(line)) for line in ok], 1)
        for name, start in (("request_tok_s", "submit"), ("request_tok_s_dispatch", "dispatch")):
            found[name] = ([over(line["output_tokens"] * 1e9, less(line, start, "last")) for line in ok], 1)
        return found

    def tpot(self, line: Line) -> float | None:
        if line["_n"] is None or line["_n"] < 2:
            return None
        return self.spaced(line, over(less(line, "first", "last"), line["_n"] - 1))

    def spaced(self, line: Line, value: float | None) -> float | None:
        """Nothing where the answer came whole: no gap between tokens was seen."""
        return value if self.streamed(line) else None

    def streamed(self, line: Line) -> bool:
        return self.document["plan"]["description"].get("streaming") is not False and line["streamed"] is not False

    def gen(self, line: Line) -> int | None:
        total, first = less(line, "submit", "end"), less(line, "submit", "any")
        return None if total is None or first is None else max(0, total - first)

    # -- fluidity, idleness, benefit (5.9 to 5.11)

    def d_p(self, line: Line) -> int:
        table = self.output["prefill_deadline"] or [[0, 100.0]]
        x, y = [pair[0] for pair in sorted(table)], [pair[1] for pair in sorted(table)]
        at = line["input_tokens"]
        k = bisect_right(x, at)
        if k == 0 or k == len(x):
            return round((y[0] if k == 0 else y[-1]) * MS)
        return round((y[k - 1] + (at - x[k - 1]) / (x[k] - x[k - 1]) * (y[k] - y[k - 1])) * MS)

    @property
    def d_d(self) -> int:
        return round((50.0 if self.output["decode_deadline"] is None else self.output["decode_deadline"]) * MS)

    def slots(self, line: Line) -> list[int]:
        return [b - a for a, b in zip([line["_from"], *line["_t"]], line["_t"], strict=False)]

    def fluidity(self, line: Line) -> dict[str, float | None]:
        s, n = self.slots(line), len(line["_t"])
        if n == 0:
            return dict.fromkeys(
                ("fluidity_index", "fluidity_index_decode", "fluidity_index_deadline", "deadline_miss_rate")
            )
        met, missed = deadlines(s, [self.d_p(line)] + [self.d_d] * (n - 1), self.d_d)
        decode, _ = deadlines(s[1:], [self.d_d] * (n - 1), self.d_d)
        return {
            "fluidity_index": met / n,
            "fluidity_index_decode": decode / (n - 1) if n > 1 else None,
            "fluidity_index_deadline": 1 - missed / (met + missed),
            "deadline_miss_rate": missed / (met + missed),
        }

    def lateness(self, line: Line, speed: float, origin: int | None) -> int | None:
        v = round(1e9 / speed)
        if origin is None:
            return None
        late = [t - origin - v * (k + 1) for k, t in enumerate(line["_t"])]
        finished = line["status"] in ("ok", "empty", "refused")
        if (not finished or not line["_t"]) and line["t_end_ns"] is not None:
            late.append(line["t_end_ns"] - origin - v * (len(line["_t"]) + 1))
        return max(late) if late else None

    def idle(self, line: Line, speed: float, origin: int | None = None) -> int | None:
        late = self.lateness(line, speed, line["_from"] if origin is None else origin)
        return None if late is None else max(0, late)

    @property
    def speed(self) -> float:
        return self.output["reading_speed"] or 20.0

    def metrics(self) -> dict[str, dict[str, Any]]:
        found = {name: described(values, scale) for name, (values, scale) in self.of_ok().items()}
        option = self.document["metrics"]["share_single"]["itl_option"]
        name = GAPS[option]
        gaps = [self.gaps(line, option) for line in self.ok]
        for each in ("itl", "tbc", "itl_b"):
            found[each] = described([gap for one in gaps for gap in one] if each == name else [], MS)
        found["jitter"] = described([spread(one) for one in gaps], MS)
        found["max_pause"] = described([max(one) if one else None for one in gaps], MS)
        rated = [(line, self.gen(line)) for line in self.ok]
        kept = [None if d is None else line["output_tokens"] * 1e9 / d for line, d in rated if d is None or d >= 10**7]
        found["gen_tok_s"] = {**described(kept), "degenerate": sum(d is not None and d < 10**7 for _, d in rated)}
        judged = [self.fluidity(line) for line in self.ok]
        for each in FLUID:
            found[each] = described([one[each] for one in judged])
        fluid = [one["fluidity_index"] is not None and one["fluidity_index"] >= 0.9 for one in judged]
        found["fluid_share"] = {"value": over(sum(fluid), len(self.submitted))}
        everybody = self.submitted
        late = [self.lateness(line, self.speed, line["_from"]) for line in everybody]
        found["max_lateness"] = described(late, MS)
        found["idle_latency"] = described([None if t is None else max(0, t) for t in late], MS)
        found["idle_latency_sched"] = described(
            [self.idle(line, self.speed, line["t_sched_ns"]) for line in everybody], MS
        )
        for key, alpha, speed in (("sg_default", 5.0, 20.0), ("sg_fig6", 10.0, 5.0)):
            worth = [self.benefit(line, alpha, speed) for line in everybody]
            found[f"benefit_{key}"] = described(worth)
            found[f"smooth_goodput_{key}"] = {"value": over(math.fsum(b for b in worth if b is not None), self.base)}
        least = [min_tbt(self.slots(line)[1:]) for line in self.ok]
        found["min_tbt_deadline"] = described(least, MS)
        p99 = found["min_tbt_deadline"]["p99"]
        found["fluid_token_rate_stream"] = {"value": over(1000.0, p99)}
        pooled = [gap for one in gaps for gap in one]
        found["share_single"] = {"value": self.share_single(), "pooled_as": name}
        found["tail_index"] = {"value": moment_tail(pooled)}
        stated, exactly = self.document["metrics"]["modality"]["value"], modes(pooled)
        near = stated != exactly and stated in modes_within(pooled)
        found["modality"] = {"value": stated if near else exactly}
        return {**found, **self.rates(), **self.shares(), **self.rest()}

    def share_single(self) -> float | None:
        """Chunks of one token among those of any; a bound from the totals where the tokens of chunks are unknown."""
        single = chunks = totals = known = 0
        usable = False
        for line in filter(self.streamed, self.ok):
            size = len(line["token_counts"])
            if line["_known"]:
                single += sum(k == 1 for k in line["token_counts"])
                chunks += sum(k > 0 for k in line["token_counts"])
                usable = True
            else:
                chunks += size
                if line["_n"] is not None and line["output_tokens_source"] != "estimate":
                    totals, known, usable = totals + line["_n"], known + size, True
        return over(single + max(0, known - abs(totals - known)), chunks) if usable else None

    def counted(self) -> dict[str, Any]:
        """`counts` of run.json, and vLLM's flat keys that are counts or rates."""
        gone = ("client_cancelled", "client_abandoned")
        by = {name: sum(line["status"] == name for line in self.measured) for name in STATUSES}
        left = sum(line["error"] in gone for line in self.measured)
        explicit = ("http_error", "rate_limited", "connection_error", "protocol_error", "truncated", "stream_error")
        return {
            **by, "planned": len(self.measured), "dispatched": len(self.measured) - by["not_sent"], "left": left,
            "failed": len(self.measured) - by["ok"] - by["not_sent"] - by["in_flight"] - left,
            "explicit_errors": sum(by[name] for name in explicit),
            "submitted_in_window": len(self.submitted), "latency_population": len(self.ok),
            "came_whole": sum(not self.streamed(line) for line in self.ok),
            "input_tokens": sum(line["input_tokens"] for line in self.all_ok),
            "output_tokens": sum(line["output_tokens"] for line in self.all_ok),
        }  # fmt: skip

    def flat(self) -> dict[str, Any]:
        metrics = self.metrics()
        rates = self.rates()
        option = self.document["metrics"]["share_single"]["itl_option"]
        found: dict[str, Any] = {
            "duration": self.seconds, "completed": len(self.all_ok), "failed": self.counted()["failed"],
            "request_throughput": rates["req_s"]["value"], "output_throughput": rates["output_tok_s"]["value"],
            "total_token_throughput": rates["output_tok_s"]["value"] + rates["input_tok_s"]["value"],
        }  # fmt: skip
        for theirs, ours in {
            "ttft": "ttft",
            "tpot": "tpot",
            "itl": GAPS[option],
            "e2el": "e2e",
        }.items():
            for key, field in {
                "mean": "mean",
                "median": "p50",
                "std": "std",
                "p90": "p90",
                "p99": "p99",
                "p999": "p999",
            }.items():
                found[f"{key}_{theirs}_ms"] = metrics[ours][field]
        return found

    def fairness(self) -> dict[str, Any]:
        """Jain over e2e per token, and starvation by class (7.4, 7.5)."""
        x = [v for line in self.ok if (v := over(less(line, "submit", "last"), line["output_tokens"])) is not None]
        jain = over(math.fsum(x) ** 2, len(x) * math.fsum(v * v for v in x))
        found = {}
        for name in dict.fromkeys(line["class"] for line in self.submitted):
            mine = [line for line in self.submitted if line["class"] == name]
            got = sorted(w for line in mine if (w := less(line, "submit", "first")) is not None)
            middle = quantile(got, 0.5) if got else 0
            starved = [self.waited(line) > 5 * middle for line in mine] if got else None
            found[str(name)] = {
                "submitted": len(mine),
                "starvation_rate": None if starved is None else sum(starved) / len(mine),
            }
        return {"jain_norm_latency": {"value": jain, "n": len(x)}, "classes": found}

    @property
    def base(self) -> float:
        """Window, or makespan of what was submitted where the run is bounded by count (6.4)."""
        ends = [line["t_last_ns"] for line in self.submitted if line["t_last_ns"]]
        if not self.closed or not ends:
            return self.seconds
        return (max(ends) - min(line["t_dispatch_ns"] for line in self.submitted)) / 1e9

    def received(self, line: Line) -> int:
        """n_r: the declared count, else what was seen arriving where chunks are known to be tokens."""
        declared = line["_n"] is not None and line["output_tokens_source"] in ("usage", "tokenizer")
        direct = self.document["metrics"]["share_single"]["itl_option"] == "direct"
        if declared or not (line["_known"] or direct or line["_n"] is None):
            return line["_n"]
        return len(line["_t"])

    def benefit(self, line: Line, alpha: float, speed: float) -> float | None:
        idle = self.idle(line, speed)
        return None if idle is None else self.received(line) - alpha * idle / 1e9

    # -- rates and shares (6.2, 6.3)

    def delivered(self, lines: list[Line]) -> float:
        total = 0.0
        for line in lines:
            times = [*line["token_ns"], *line["untimed_ns"]]
            weights = [k or 1 for k in (*line["token_counts"], *line["untimed_counts"])]
            if times:
                got = sum(w for t, w in zip(times, weights, strict=True) if self.inside(t))
                total += line["output_tokens"] * got / sum(weights)
        return total

    def rates(self) -> dict[str, dict[str, Any]]:
        done = self.all_ok
        left = ("client_cancelled", "client_abandoned")
        failed = [line for line in self.measured if line["status"] != "ok" and line["error"] not in left]
        begun = [line for line in done if self.inside(line["t_first_ns"])]
        cached = [line for line in done if line["cached_tokens"] is not None]
        span = (
            (max(line["t_last_ns"] for line in done) - min(line["t_dispatch_ns"] for line in done)) / 1e9
            if done
            else None
        )
        values = {
            "req_s": over(sum(self.inside(line["t_last_ns"]) for line in done), self.seconds),
            "output_tok_s": over(self.delivered(done), self.seconds),
            "failed_output_tok_s": over(self.delivered(failed), self.seconds),
            "input_tok_s": over(sum(line["input_tokens"] for line in begun), self.seconds),
            "input_tok_s_cache_misses": over(
                sum(line["input_tokens"] - (line["cached_tokens"] or 0) for line in begun), self.seconds
            ) if cached else None,
            "req_s_makespan": over(len(done), span),
            "output_tok_s_makespan": over(sum(line["output_tokens"] for line in done), span),
        }  # fmt: skip
        return {name: {"value": value} for name, value in values.items()}

    def shares(self) -> dict[str, dict[str, Any]]:
        total, ok = len(self.submitted), len(self.ok)
        gone = sum(line["error"] == "client_abandoned" for line in self.submitted)
        explicit = ("http_error", "rate_limited", "connection_error", "protocol_error", "truncated", "stream_error")
        values = {
            "success_rate": over(ok, total), "completion_rate": over(ok, total),
            "fail_rate": over(total - ok - gone, total),
            "errors": sum(line["status"] in explicit for line in self.submitted),
            "refusals": sum(line["status"] == "refused" for line in self.submitted),
        }  # fmt: skip
        if "abandon_rate" in self.document["metrics"]:
            values["abandon_rate"] = over(gone, total)
        return {name: {"value": value} for name, value in values.items()}

    def rest(self) -> dict[str, dict[str, Any]]:
        """In flight (7.2), round trips (7.12), servers' own durations, tail ratio and cost."""
        metrics = self.document["metrics"]
        connects = sorted(t for line in self.lines if (t := less_connected(line)) is not None)
        connects = connects or sorted(
            round(ms * MS)
            for name in ("connect_ms", "connect_after_ms")
            for ms in self.document["target"].get(name) or ()
        )
        found: dict[str, dict[str, Any]] = {
            "rtt_ms": {
                "n": len(connects),
                **{k: quantile(connects, Q[k]) / MS if connects else None for k in ("p50", "p95")},
            },
            "tokens_in_flight": self.in_flight(),
            "server_ttft": described([line["server_prompt_eval_ns"] for line in self.ok], MS),
        }
        for name in ("total", "load", "prompt_eval", "eval"):
            found[f"server_{name}_duration"] = described([line[f"server_{name}_ns"] for line in self.ok], MS)
        option = metrics["share_single"]["itl_option"]
        gaps = described([gap for line in self.ok for gap in self.gaps(line, option)], MS)
        rates = [(line["server_eval_ns"], line["output_tokens"]) for line in self.ok if line["server_eval_ns"]]
        found["server_gen_tok_s"] = described([n * 1e9 / d for d, n in rates if d >= 10**7])
        found["server_gen_tok_s"].pop("n_null")
        if "ttft_net_adjusted" in metrics:
            rtt = round(quantile(connects, 0.5)) if connects else None
            net = [
                None if rtt is None else t - rtt for line in self.ok if (t := less(line, "submit", "first")) is not None
            ]
            found["ttft_net_adjusted"] = described(net, MS)
        if str(self.document["declarations"].get("cold_start")) == "yes":
            first = min((line for line in self.lines if line["t_submit_ns"]), key=lambda line: line["t_submit_ns"])
            found["cold_start_latency"] = {"value": less(first, "submit", "first") / MS}
        found["tail_ratio"] = {"value": over(gaps["p99"], gaps["p50"])}
        tok_s = self.rates()["output_tok_s"]["value"]
        gpus, price = self.output["gpus"], self.output["price_per_hour"]
        found["tok_per_gpu_s"] = {"value": over(tok_s, gpus)}
        found["tok_s_per_dollar_hour"] = {"value": over(tok_s, price)}
        found["tokens_per_dollar"] = {"value": None if price is None else 3600 * tok_s / price}
        return found

    def in_flight(self) -> dict[str, Any]:
        """Time average over the window of prompts and tokens so far of what is in flight, and its maximum."""
        changes: list[tuple[int, float]] = []
        area = 0.0
        for line in self.measured:
            if line["t_submit_ns"] is None:
                continue
            end = self.w1 if line["t_end_ns"] is None else line["t_end_ns"]
            times = [*line["token_ns"], *line["untimed_ns"]]
            weights = [k or 1 for k in (*line["token_counts"], *line["untimed_counts"])]
            each = line["output_tokens"] / sum(weights) if weights else 0.0
            steps = [(line["t_submit_ns"], float(line["input_tokens"]))]
            steps += [(t, w * each) for t, w in zip(times, weights, strict=True) if t < end]
            area += sum(a * max(0, min(end, self.w1) - max(t, self.w0)) for t, a in steps)
            changes += [*steps, (end, -math.fsum(a for _, a in steps))]
        # At one instant an end takes what it held before anything new counts; the highest level is just before an end.
        level = most = 0.0
        for t, _, amount in sorted((t, amount >= 0, amount) for t, amount in changes):
            if amount < 0 and self.w0 < t <= self.w1:
                most = max(most, level)
            if t >= self.w1:
                break
            level += amount
        return {"value": over(area / 1e9, self.seconds), "max": max(most, level)}

    # -- objectives (5.12, 6.4)

    def objectives(self) -> dict[str, Any]:
        asked = self.output["goodput"]
        met = [self.meets(line) for line in self.submitted]
        n_r = sum(self.received(line) for line, good in zip(self.submitted, met, strict=True) if good)
        return {
            "met": sum(met), "submitted": len(met), "slo_attainment": over(sum(met), len(met)),
            "request_goodput": over(sum(met), self.base), "token_goodput": over(n_r, self.base),
            "each": {name: sum(self.one(line, name.rpartition("/")[2], limit)
                               for line in self.submitted if self.about(line, name)) for name, limit in asked},
        }  # fmt: skip

    def about(self, line: Line, name: str) -> bool:
        head, _, metric = name.rpartition("/")
        if head:
            return str(line["class"]) == head
        return not any(other == f"{line['class']}/{metric}" for other, _ in self.output["goodput"])

    def meets(self, line: Line) -> bool:
        asked = self.output["goodput"]
        return line["status"] == "ok" and all(
            self.one(line, name.rpartition("/")[2], limit) for name, limit in asked if self.about(line, name)
        )

    def one(self, line: Line, metric: str, limit: float) -> bool:
        if line["status"] != "ok":
            return False
        most = round(limit * MS)
        value: float | None
        if metric in ("ttft", "ttft_sched", "e2el", "e2el_sched"):
            start = "sched" if metric.endswith("sched") else "submit"
            value = less(line, start, "first" if metric.startswith("ttft") else "last")
            return value is not None and value <= most
        if metric == "tpot":
            value = self.tpot(line)
            return value is None or value <= most
        if metric in ("itl", "tbt", "tbc"):
            return all(gap <= most for gap in self.gaps(line, "A" if metric == "tbc" else "direct"))
        if metric == "idle":
            value = self.idle(line, self.speed)
            return value is not None and value <= most
        if metric == "reading":
            value = self.lateness(line, limit, line["_from"])
            return value is not None and value <= 0
        value = self.fluidity(line)["fluidity_index"]
        return value is not None and value >= limit

    def waited(self, line: Line) -> int:
        """To the first token, or to the end of a request without one; -1 for one that never ended."""
        first = less(line, "submit", "first")
        if first is not None:
            return first
        return -1 if line["t_end_ns"] is None else int(line["t_end_ns"] - line["_from"])

    # -- classes

    def classes(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name in dict.fromkeys(line["class"] for line in self.measured):
            part = Recomputed.__new__(Recomputed)
            part.__dict__ = {**self.__dict__, "measured": [line for line in self.measured if line["class"] == name]}
            part.ok = [line for line in self.ok if line["class"] == name]
            part.submitted = [line for line in self.submitted if line["class"] == name]
            part.all_ok = [line for line in self.all_ok if line["class"] == name]
            of = part.of_ok()
            rates = part.rates()
            found[str(name)] = {
                "planned": len(part.measured), "ok": len(part.all_ok),
                "came_whole": sum(not self.streamed(line) for line in part.ok),
                "success_rate": over(len(part.ok), len(part.submitted)),
                "req_s": rates["req_s"]["value"], "output_tok_s": rates["output_tok_s"]["value"],
                "input_tokens_mean": over(sum(line["input_tokens"] for line in part.ok), len(part.ok)),
                "output_tokens_mean": over(sum(line["output_tokens"] for line in part.ok), len(part.ok)),
                **{m: described(of[m][0], MS) for m in ("ttft", "ttft_sched", "tpot", "e2e", "e2e_sched")},
            }  # fmt: skip
        return found
