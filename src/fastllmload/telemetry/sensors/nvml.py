"""NVIDIA GPUs by NVML (nvidia-ml-py, extra `gpu`). What a GPU or its driver does not report is left out, never 0."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastllmload.telemetry.sensors.sensor import COUNTER, Absent, Key, Reading, SensorError

MISSING = "the package nvidia-ml-py is not installed; install fastllmload with the extra `gpu`"
# Bits of the clock event reasons: the GPU runs below what was asked of it because of heat or power.
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


def throttle_words(bits: int) -> list[str]:
    """The reasons among *bits* that mean throttling; an idle GPU or one with fixed clocks has none."""
    return [words for bit, words in THROTTLES.items() if bits & bit]


@dataclass(frozen=True)
class GpuFigure:
    """One number of a GPU. *ask*: (the module, a device's handle) -> value."""

    name: str
    source: str
    unit: str
    ask: Callable[[Any, Any], float]
    kind: str = "gauge"


FIGURES: tuple[GpuFigure, ...] = (
    GpuFigure("power_w", "nvmlDeviceGetPowerUsage", "W", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    GpuFigure("energy_j", "nvmlDeviceGetTotalEnergyConsumption", "J",
           lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3, COUNTER),
    GpuFigure("utilisation", "nvmlDeviceGetUtilizationRates", "share",
           lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
    GpuFigure("memory_used_bytes", "nvmlDeviceGetMemoryInfo", "bytes",
           lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    GpuFigure("temperature_c", "nvmlDeviceGetTemperature", "degrees Celsius",
           lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    GpuFigure("sm_clock_mhz", "nvmlDeviceGetClockInfo", "MHz",
           lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    GpuFigure("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", "bits",
           lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
)  # fmt: skip


class Nvml:
    """Sensor over GPUs. Series `gpu<N>.<figure>`, and `power_w`, the sum over the GPUs when each one tells its own."""

    origin = "nvml"

    def __init__(self, nvml: Any, indices: Sequence[int]) -> None:
        self._nvml = nvml
        self._gpus = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in indices}
        self._silent: set[tuple[int, str]] = set()  # (GPU, figure) that it said it does not have

    def read(self) -> list[Reading]:
        readings: list[Reading] = []
        for index, gpu in self._gpus.items():
            readings += self._of_one(index, gpu)
        watts = [reading.value for reading in readings if reading.key.name.endswith(".power_w")]
        if not readings:
            raise SensorError("NVML gave no figure of any GPU")
        if len(watts) == len(self._gpus):
            readings.append(Reading(Key("power_w", "nvmlDeviceGetPowerUsage", "W"), sum(watts)))
        return readings

    def _of_one(self, index: int, gpu: Any) -> list[Reading]:
        readings = []
        for figure in FIGURES:
            if (index, figure.name) in self._silent:
                continue
            try:
                value = float(figure.ask(self._nvml, gpu))
            except self._nvml.NVMLError_NotSupported:
                self._silent.add((index, figure.name))
            except self._nvml.NVMLError:  # this time; the next read asks again, and the gap shows in the series
                continue
            else:
                key = Key(f"gpu{index}.{figure.name}", figure.source, figure.unit, figure.kind)
                readings.append(Reading(key, value))
        return readings

    def facts(self) -> list[dict[str, Any]]:
        """Model, memory, driver and power limit of each GPU, for `environment`."""
        nvml = self._nvml
        driver = self._read(nvml.nvmlSystemGetDriverVersion)
        limit_mw = {index: self._read(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu) for index, gpu in self._gpus.items()}
        memory = {index: self._read(nvml.nvmlDeviceGetMemoryInfo, gpu) for index, gpu in self._gpus.items()}
        return [
            {
                "index": index,
                "name": self._read(nvml.nvmlDeviceGetName, gpu),
                "uuid": self._read(nvml.nvmlDeviceGetUUID, gpu),
                "memory_bytes": None if memory[index] is None else int(memory[index].total),
                "power_limit_w": None if limit_mw[index] is None else limit_mw[index] / 1e3,
                "driver": driver,
            }
            for index, gpu in self._gpus.items()
        ]

    def _read(self, ask: Callable[..., Any], *of: Any) -> Any:
        try:
            value = ask(*of)
        except self._nvml.NVMLError:
            return None
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def close(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as problem:
            raise SensorError(f"NVML did not shut down: {problem}") from None


def open_nvml(indices: Sequence[int] = (), module: str = "pynvml") -> Nvml | Absent:
    """GPUs *indices*, all when empty; Absent says what is missing: the package, the driver, or a GPU."""
    try:
        nvml = importlib.import_module(module)
    except ImportError:
        return Absent("nvml", MISSING)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        return Absent("nvml", f"NVML cannot be used: {problem}; is there an NVIDIA driver?")
    try:
        count = nvml.nvmlDeviceGetCount()
        wrong = [index for index in indices if index >= count]
        if wrong or count == 0:
            nvml.nvmlShutdown()
            which = f"GPU {wrong[0]} is not there; " if wrong else ""
            return Absent("nvml", f"{which}NVML sees {count} GPUs")
        return Nvml(nvml, list(indices) or list(range(count)))
    except nvml.NVMLError as problem:
        return Absent("nvml", f"NVML cannot reach the GPUs: {problem}")
